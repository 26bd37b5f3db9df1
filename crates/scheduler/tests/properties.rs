//! Properties of the scheduler, over random clusters, workloads and histories.
//!
//! Everything goes through the real state machine: commands in, events out, events into the [`View`], plans back in
//! as commands. What is demanded is written down a second time, naively and from the specification, so that the code
//! is never its own judge.
//!
//! `PROPTEST_CASES=20000 PROPTEST_RNG_SEED=$RANDOM cargo test -p longshore-scheduler --test properties` runs long, on
//! other cases; without a seed they are the same every time.
//!
//! [`View`]: longshore_scheduler::View

#[path = "../src/cases.rs"]
mod cases;

mod properties {
    mod accounted;
    mod explanation;
    mod histories;
    mod ledger;
    mod limits;
    mod noise;
    mod order;
    mod ranking;
    mod rebuilt;
    mod regressions;
    mod replan;
    mod rules;
    mod services;
    mod shapes;
    mod water;
    mod world;
}
