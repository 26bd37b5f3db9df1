//! Ranking and placement rules beyond counts: `binpack` against a naive implementation of its formula, preemption,
//! skew, companions, distinct rules, and all of them in random combinations.
//!
//! As in `properties`, everything goes through the real state machine and is checked against a naive second
//! implementation. Floats are fine here: a test may be off by a millionth, a decision may not.
//!
//! `PROPTEST_CASES=20000 PROPTEST_RNG_SEED=$RANDOM cargo test -p longshore-scheduler --test ranking` runs more and
//! other cases; without a seed the cases are the same every time.

#[path = "../src/proptest_config.rs"]
mod proptest_config;

mod ranking {
    mod binpack_reference;
    mod cluster;
    mod mixed_rules;
    mod preemption;
    mod preemption_properties;
    mod published_scores;
    mod skew;
    mod spread_targets;
}
