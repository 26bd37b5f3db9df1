//! Fuzzing: generated clusters, work and faults violate no invariant and come to rest.
//!
//! `longshore sim fuzz --seeds A..B` tries other seeds; a failing seed becomes a scenario under `tests/scenarios/fuzz/`.

use std::thread;

use longshore_sim::fuzz;

const SEEDS: u64 = 300;
/// Enough for the cores of a build machine, few enough not to overload a small one.
const THREADS: u64 = 4;

#[test]
fn three_hundred_clusters_break_no_rule_and_come_to_rest() {
    let failures: Vec<String> = thread::scope(|scope| {
        let try_some = |first: u64| {
            let seeds = (first..SEEDS).step_by(usize::try_from(THREADS).expect("four fits"));
            seeds.filter_map(describe).collect::<Vec<String>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || try_some(first))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread ends")).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn describe(seed: u64) -> Option<String> {
    let failure = fuzz::try_seed(seed).failure?;
    let rule = failure.kind.name();
    Some(format!(
        "seed {seed} breaks `{rule}`: {}\n\nhint: longshore sim fuzz --seeds {seed}..{}",
        failure.message,
        seed + 1
    ))
}

#[test]
fn a_seed_means_the_same_scenario_every_time() {
    assert_eq!(fuzz::generate(7).print(), fuzz::generate(7).print());
    assert_ne!(fuzz::generate(7).print(), fuzz::generate(8).print());
}
