//! Fuzzing: random clusters, work and faults. Every rule is checked after every event, then everything is healed and the
//! cluster must come to rest.
//!
//! ```text
//! seed -> generate -> scenario file -> run (twice) -> verdict -> minimise -> smallest file that fails in the same way
//! ```
//!
//! Owns: generation, verdict and minimisation. Must not touch: the run, which is that of any scenario.
//! Invariant: a seed gives the same scenario on every machine, and a failure is a file that anybody can run.

mod generate;
mod minimise;
pub(crate) mod rng;
mod tree;
mod verdict;

pub use self::{
    tree::Tree,
    verdict::{Failure, FailureKind, Trial},
};

/// Generates the scenario of a seed.
pub fn generate(seed: u64) -> Tree {
    generate::generate(seed)
}

/// Generates the scenario of a seed, runs it and judges it.
pub fn try_seed(seed: u64) -> Trial {
    try_scenario(&generate(seed))
}

/// Runs a scenario and judges it.
pub fn try_scenario(scenario: &Tree) -> Trial {
    verdict::judge(scenario)
}

/// Returns a smaller scenario that fails in the same way.
pub fn minimise(scenario: &Tree, kind: &FailureKind) -> Tree {
    minimise::minimise(scenario, kind)
}
