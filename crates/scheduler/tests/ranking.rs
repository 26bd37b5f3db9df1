//! Ranking and everything that makes placement more than a count: `binpack` against a naive reading of its formula,
//! preemption, skew, company, distinctness, and all of them mixed at random.
//!
//! As in the other properties, everything goes through the real state machine, and what is demanded is written down a
//! second time, naively. Floats are fine here: a test may be off by a millionth, a decision may not.
//!
//! `PROPTEST_CASES=20000 PROPTEST_RNG_SEED=$RANDOM cargo test -p longshore-scheduler --test ranking` runs long, on
//! other cases; without a seed they are the same every time.

#[path = "../src/cases.rs"]
mod cases;

mod ranking {
    mod cluster;
    mod mixed;
    mod oracle;
    mod preemption;
    mod shares;
    mod skew;
    mod vectors;
    mod victims;
}
