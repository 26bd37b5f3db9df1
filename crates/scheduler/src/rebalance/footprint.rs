//! How much of a machine one replica makes up.
//!
//! Owns: where that figure comes from: measured, else declared, else assumed. Must not touch: what is done with it.

use longshore_model::{
    Node, ServiceSpec,
    rebalance::{Pressure, Share},
};

/// Assumed of a replica that declares no CPU: just above the relief a move must bring, so that one is considered at all.
const ASSUMED_CPU: Share = Share(120_000);
/// Assumed of a replica that declares no memory.
const ASSUMED_MEMORY: Share = Share(60_000);

/// What a driver measured of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Thousandths of a core in use.
    pub cpu_millis: u64,
    /// Memory in use.
    pub memory_bytes: u64,
}

/// A replica's part of a machine's physical cores and memory, by what its service declares: the limit, else the
/// reservation, else what is assumed.
pub fn footprint(spec: &ServiceSpec, node: &Node) -> Pressure {
    let resources = &spec.resources;
    let cpu = resources.cpu_limit_millis.or(resources.cpu_reservation_millis);
    let memory = resources.memory_limit_bytes.or(resources.memory_reservation_bytes);
    Pressure {
        cpu: cpu.map_or(ASSUMED_CPU, |millis| share(millis, node.capacity.cpu_millis)),
        memory: memory.map_or(ASSUMED_MEMORY, |bytes| share(bytes, node.capacity.memory_bytes)),
    }
}

/// The same of a replica that was measured.
pub(super) fn measured(usage: Measured, node: &Node) -> Pressure {
    Pressure {
        cpu: share(usage.cpu_millis, node.capacity.cpu_millis),
        memory: share(usage.memory_bytes, node.capacity.memory_bytes),
    }
}

/// A part of what there is; anything at all of nothing is the whole.
fn share(part: u64, whole: u64) -> Share {
    let millionths = (u128::from(part) * 1_000_000).checked_div(u128::from(whole));
    millionths.map_or(Share::WHOLE, |millionths| Share(i64::try_from(millionths).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use longshore_model::{service::Resources, units::GIB};

    use super::*;
    use crate::rebalance::stories::node;

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
    fn without_limits_a_little_more_than_the_relief_floor_is_assumed() {
        let expected = Pressure { cpu: Share(120_000), memory: Share(60_000) };
        assert_eq!(footprint(&ServiceSpec::default(), &node("a")), expected);
    }

    #[test]
    fn a_machine_without_cores_is_filled_by_anything() {
        assert_eq!(share(1, 0), Share::WHOLE);
        assert_eq!(measured(Measured { cpu_millis: 400, memory_bytes: GIB }, &node("a")).cpu, Share(100_000));
    }
}
