//! The share of a node's CPU and memory that one replica uses.
//!
//! Owns: the source of that share: measured, else declared, else assumed. Must not touch: how it is used.

use longshore_model::{
    Node, ServiceSpec,
    rebalance::{Pressure, Share},
};

/// Assumed of a replica that declares no CPU: just above the least relief of a move, so that it can be moved at all.
const ASSUMED_CPU: Share = Share(120_000);
/// Assumed of a replica that declares no memory.
const ASSUMED_MEMORY: Share = Share(60_000);

/// The use of one replica as measured by its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredUsage {
    /// Thousandths of a core in use.
    pub cpu_millis: u64,
    /// Memory in use.
    pub memory_bytes: u64,
}

/// A replica's share of a node's physical cores and memory, from what its service declares: the limit, else the
/// reservation, else an assumed share.
pub fn footprint(spec: &ServiceSpec, node: &Node) -> Pressure {
    let resources = &spec.resources;
    let cpu = resources.cpu_limit_millis.or(resources.cpu_reservation_millis);
    let memory = resources.memory_limit_bytes.or(resources.memory_reservation_bytes);
    Pressure {
        cpu: cpu.map_or(ASSUMED_CPU, |millis| share(millis, node.capacity.cpu_millis)),
        memory: memory.map_or(ASSUMED_MEMORY, |bytes| share(bytes, node.capacity.memory_bytes)),
    }
}

/// The same share from measured use.
pub(super) fn measured(usage: MeasuredUsage, node: &Node) -> Pressure {
    Pressure {
        cpu: share(usage.cpu_millis, node.capacity.cpu_millis),
        memory: share(usage.memory_bytes, node.capacity.memory_bytes),
    }
}

/// `part / whole`; the whole if `whole` is zero.
fn share(part: u64, whole: u64) -> Share {
    let millionths = (u128::from(part) * 1_000_000).checked_div(u128::from(whole));
    millionths.map_or(Share::WHOLE, |millionths| Share(i64::try_from(millionths).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use longshore_model::{service::Resources, units::GIB};

    use super::*;
    use crate::rebalance::tests::node;

    #[test]
    fn a_declared_limit_is_a_share_of_the_physical_machine() {
        let resources = Resources {
            cpu_limit_millis: Some(1000),
            cpu_reservation_millis: Some(100),
            memory_reservation_bytes: Some(2 * GIB),
            ..Resources::default()
        };
        let spec = ServiceSpec { resources, ..ServiceSpec::default() };
        let expected = Pressure { cpu: Share(250_000), memory: Share(250_000) };
        assert_eq!(footprint(&spec, &node("a")), expected);
    }

    #[test]
    fn without_limits_slightly_more_than_the_relief_floor_is_assumed() {
        let expected = Pressure { cpu: Share(120_000), memory: Share(60_000) };
        assert_eq!(footprint(&ServiceSpec::default(), &node("a")), expected);
    }

    #[test]
    fn any_replica_uses_the_whole_of_a_node_without_capacity() {
        assert_eq!(share(1, 0), Share::WHOLE);
        assert_eq!(measured(MeasuredUsage { cpu_millis: 400, memory_bytes: GIB }, &node("a")).cpu, Share(100_000));
    }
}
