//! How many random cases a property of this crate tries, and which.
//!
//! The same cases every time, so that a red build is about the change and not about luck. A long run looks further with
//! `PROPTEST_CASES`, and elsewhere with `PROPTEST_RNG_SEED`: any whole number draws other cases, and draws them again.
//!
//! Owns: the settings all properties share, beside the code and under `tests`. Must not touch: what they try.
//! Invariant: without those variables, two runs of one build try the same.

use proptest::{prelude::ProptestConfig, test_runner::RngSeed};

/// The settings of a property that usually tries so many cases.
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let environment = ProptestConfig::default();
    let rng_seed = match environment.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        RngSeed::Fixed(seed) => RngSeed::Fixed(seed),
    };
    ProptestConfig { cases: asked.unwrap_or(usual), rng_seed, failure_persistence: None, ..environment }
}
