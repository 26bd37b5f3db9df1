//! Moves that even the load, and what was weighed before each.
//!
//! Owns: pressures, the payload every move and every skip carries, and the record a move leaves.
//! Must not touch: gates and scores; the `scheduler` room decides.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Generation, GroupKey, NodeName, SlotKey, Time};

/// A part of a machine, in millionths; one million is all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(pub i64);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// All of it.
    pub const WHOLE: Self = Self(1_000_000);

    /// The larger part this one and another make together.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left of this one without another; may be less than nothing.
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

/// How busy a machine is, or how much a replica makes it so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Of the cores.
    pub cpu: Share,
    /// Of the memory.
    pub memory: Share,
}

impl Pressure {
    /// The one number a machine is judged by: the worse of the two.
    pub fn composite(self) -> Share {
        self.cpu.max(self.memory)
    }

    /// What the composite comes from; CPU on a tie.
    pub fn dominant(self) -> Dimension {
        if self.memory > self.cpu { Dimension::Memory } else { Dimension::Cpu }
    }

    /// One of the two.
    pub const fn of(self, dimension: Dimension) -> Share {
        match dimension {
            Dimension::Cpu => self.cpu,
            Dimension::Memory => self.memory,
        }
    }
}

/// What a machine can run short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Cores.
    Cpu,
    /// Memory.
    Memory,
}

impl Dimension {
    /// The word in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// What makes a replica move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveCause {
    /// Its node is hot and another is not.
    Pressure,
    /// Its service is spread unevenly, and somebody asked to even it out.
    EvenOut,
}

impl MoveCause {
    /// The word in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pressure => "pressure",
            Self::EvenOut => "even_out",
        }
    }
}

/// What was weighed before a replica was moved, or left where it is. What was not known, or does not apply, is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weighed {
    /// Why it was looked at.
    pub cause: MoveCause,
    /// The node it is on.
    pub src: NodeName,
    /// The node it goes to, or would have gone to.
    pub dst: Option<NodeName>,
    /// What the source runs short of.
    pub dominant: Option<Dimension>,
    /// The replica's part of that on the source.
    pub relief: Option<Share>,
    /// Relief less the cost.
    pub score: Option<Share>,
    /// What any move costs.
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

/// A replica that was moved to even the load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The group.
    pub group: GroupKey,
    /// The slot.
    pub slot: SlotKey,
    /// The generation made by the move.
    pub generation: Generation,
    /// Where it went.
    pub to: NodeName,
    /// When it was decided.
    pub at: Time,
    /// Why.
    pub weighed: Weighed,
}

/// A move that evening out would make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedMove {
    /// The group.
    pub group: GroupKey,
    /// The slot.
    pub slot: SlotKey,
    /// Where it is.
    pub from: NodeName,
    /// Where it would go.
    pub to: NodeName,
}

/// Whether a service's spread is to be evened out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EveningOut {
    /// Nobody asked, or it is done.
    #[default]
    Idle,
    /// Until no move would make it more even.
    Asked,
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
