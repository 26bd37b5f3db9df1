//! Moves of running replicas by a rebalance.
//!
//! Owns: pressures, the score of every move and skip, and the record of a move.
//! Must not touch: gates and computation of scores; the `scheduler` crate decides.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{GroupKey, NodeName, ReplicaKey, SlotKey, Time};

/// A fraction of a machine's capacity, in millionths; one million is all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(pub i64);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// All of it.
    pub const WHOLE: Self = Self(1_000_000);

    /// Saturating sum.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Saturating difference; may be negative.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let size = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:06}", size / 1_000_000, size % 1_000_000)
    }
}

/// Load of a machine, or a replica's part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// CPU time, of a machine since its previous sample.
    #[serde(rename = "cpu_millionths", deserialize_with = "unsigned_share")]
    pub cpu: Share,
    /// Memory in use.
    #[serde(rename = "memory_millionths", deserialize_with = "unsigned_share")]
    pub memory: Share,
}

/// Refuses a negative or absurd load, which only a faulty agent sends.
fn unsigned_share<'de, D: Deserializer<'de>>(from: D) -> Result<Share, D::Error> {
    u32::deserialize(from).map(|millionths| Share(i64::from(millionths)))
}

impl Pressure {
    /// The larger of the two, which machines are compared by.
    pub fn composite(self) -> Share {
        self.cpu.max(self.memory)
    }

    /// The dimension of the composite; CPU on a tie.
    pub fn dominant(self) -> Dimension {
        if self.memory > self.cpu { Dimension::Memory } else { Dimension::Cpu }
    }

    /// The value of one dimension.
    pub const fn of(self, dimension: Dimension) -> Share {
        match dimension {
            Dimension::Cpu => self.cpu,
            Dimension::Memory => self.memory,
        }
    }
}

/// A resource whose pressure is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// CPU.
    Cpu,
    /// Memory.
    Memory,
}

impl Dimension {
    /// The name in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// Why a rebalance moves a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveCause {
    /// Its node is under pressure and another is not.
    Pressure,
    /// A rebalance of its service's spread was requested.
    EvenOut,
}

impl MoveCause {
    /// The name in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pressure => "pressure",
            Self::EvenOut => "even_out",
        }
    }
}

/// The numbers behind a move, or behind a skipped one. `None` is unknown or not applicable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceScore {
    /// Why the replica was considered.
    pub cause: MoveCause,
    /// The node it is on.
    pub src: NodeName,
    /// The node it goes to, or would have gone to.
    pub dst: Option<NodeName>,
    /// The dominant dimension of the source's pressure.
    pub dominant: Option<Dimension>,
    /// How much the source's pressure in that dimension drops.
    pub relief: Option<Share>,
    /// Relief minus `move_cost`.
    pub score: Option<Share>,
    /// The fixed cost of a move.
    pub move_cost: Share,
    /// Composite pressure of the source before.
    pub src_before: Option<Share>,
    /// Composite pressure of the source after.
    pub src_after: Option<Share>,
    /// Composite pressure of the destination before.
    pub dst_before: Option<Share>,
    /// Composite pressure of the destination after.
    pub dst_after: Option<Share>,
}

/// A replica that was moved by a rebalance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The slot and the generation the move created.
    pub key: ReplicaKey,
    /// The destination.
    pub to: NodeName,
    /// When it was decided.
    pub at: Time,
    /// The numbers behind it.
    pub score: RebalanceScore,
}

/// A move that a rebalance of the spread would make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedMove {
    /// The group.
    pub group: GroupKey,
    /// The slot.
    pub slot: SlotKey,
    /// The source.
    pub from: NodeName,
    /// The destination.
    pub to: NodeName,
}

/// Whether a rebalance of a service's spread is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpreadRebalance {
    /// Not requested, or complete.
    #[default]
    Idle,
    /// Requested; ends when no move improves the spread.
    #[serde(rename = "asked")]
    Requested,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_printed_as_a_decimal() {
        let printed = [Share(950_000), Share(-10_000), Share(1_200_001), Share::NONE].map(|share| share.to_string());
        assert_eq!(printed, ["0.950000", "-0.010000", "1.200001", "0.000000"]);
    }

    #[test]
    fn the_composite_is_the_worse_of_the_two_and_cpu_dominates_a_tie() {
        let pressure = |cpu, memory| Pressure { cpu: Share(cpu), memory: Share(memory) };
        assert_eq!(pressure(300_000, 800_000).composite(), Share(800_000));
        assert_eq!(pressure(300_000, 800_000).dominant(), Dimension::Memory);
        assert_eq!(pressure(800_000, 800_000).dominant(), Dimension::Cpu);
    }
}
