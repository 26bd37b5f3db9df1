//! Properties of the scheduler, over random clusters, workloads and histories.
//!
//! Everything goes through the real state machine: commands in, events out, events into the [`View`], plans back in
//! as commands. The expected results come from a second, naive implementation of the specification (`reference_*`).
//!
//! `PROPTEST_CASES=20000 PROPTEST_RNG_SEED=$RANDOM cargo test -p longshore-scheduler --test properties` runs more and
//! other cases; without a seed the cases are the same every time.
//!
//! [`View`]: longshore_scheduler::View

#[path = "../src/proptest_config.rs"]
mod proptest_config;

mod properties {
    mod event_robustness;
    mod explanation;
    mod histories;
    mod idempotent_plan;
    mod level_spread;
    mod limits;
    mod order_independence;
    mod random_nodes;
    mod random_services;
    mod rebuilt_view;
    mod reference_filters;
    mod reference_ranking;
    mod reference_usage;
    mod regressions;
    mod slot_accounting;
    mod world;
}
