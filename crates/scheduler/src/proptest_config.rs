//! Proptest settings of this crate: how many random cases a property tries, and from which seed.
//!
//! The seed is fixed, so that a failing build is caused by the change and not by chance. `PROPTEST_CASES` raises the
//! number of cases; `PROPTEST_RNG_SEED` (any whole number) selects other cases, reproducibly.
//!
//! Owns: the settings of all properties, in `src` and in `tests`. Must not touch: the properties themselves.
//! Invariant: without those variables, two runs of one build try the same cases.

use proptest::{prelude::ProptestConfig, test_runner::RngSeed};

/// The settings of a property that tries `usual` cases unless `PROPTEST_CASES` says otherwise.
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let environment = ProptestConfig::default();
    let rng_seed = match environment.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        RngSeed::Fixed(seed) => RngSeed::Fixed(seed),
    };
    ProptestConfig { cases: asked.unwrap_or(usual), rng_seed, failure_persistence: None, ..environment }
}
