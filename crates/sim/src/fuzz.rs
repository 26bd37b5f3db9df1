//! Random clusters, random work, random trouble: every rule is checked after every event, then everything is mended and
//! the cluster must come to rest.
//!
//! ```text
//! seed -> draw -> scenario file -> run (twice) -> verdict -> what is left of the file once all that does not matter is gone
//! ```
//!
//! Owns: drawing, judging and cutting down. Must not touch: the run, which is the one every scenario has.
//! Invariant: a seed means the same scenario on every machine, and a failure is a file that anybody can run.

pub(crate) mod dice;
mod draw;
mod minimise;
mod tree;
mod verdict;

pub use self::{
    tree::Tree,
    verdict::{Failure, Kind, Trial},
};

/// Draws the scenario of a seed.
pub fn draw(seed: u64) -> Tree {
    draw::draw(seed)
}

/// Draws the scenario of a seed, runs it and judges it.
pub fn try_seed(seed: u64) -> Trial {
    try_scenario(&draw(seed))
}

/// Runs a scenario and judges it.
pub fn try_scenario(scenario: &Tree) -> Trial {
    verdict::judge(scenario)
}

/// A smaller scenario that fails in the same way.
pub fn minimise(scenario: &Tree, kind: &Kind) -> Tree {
    minimise::minimise(scenario, kind)
}
