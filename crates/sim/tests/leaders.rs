//! A leader change at any event: the new leader has only the replicated state, and the run ends in the same way.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use longshore_model::Time;
use longshore_sim::{
    Report, Scenario,
    scenario::{Action, Step},
};

/// Scenarios with long operations: drains, node losses, returns, waits, moves.
const STORIES: &[&str] = &[
    "000/a-drained-node-hands-its-replicas-over-before-they-stop",
    "000/node-remove-drains-and-then-removes",
    "000/a-drain-that-takes-too-long-times-out-and-the-node-stays",
    "000/evacuation-is-paused-when-more-than-half-are-gone",
    "000/a-node-given-up-is-evacuated-although-most-are-gone",
    "002/a-label-change-moves-a-replica-make-before-break",
    "003/a-returning-node-stops-what-is-not-its-own-before-it-is-ready",
    "003/a-volume-is-never-held-twice-across-a-partition",
    "003/what-blocks-a-drain-is-listed-with-its-volumes",
    "004/a-job-past-the-deadline-of-a-drain-runs-elsewhere",
    "004/a-lost-replica-is-lost-for-good-after-its-time",
    "004/the-original-stays-when-it-is-to-be-kept",
    "004/the-one-that-has-run-for-longest-stays",
];

/// What must not depend on the leader: node and generation of every replica, and the state of deployments and nodes.
fn end(report: &Report) -> Vec<String> {
    let rows = report
        .replicas
        .iter()
        .map(|row| format!("{} {:?} {} g{} r{}", row.id, row.node, row.state, row.generation, row.attempt));
    let deployments = report.deployments.iter().map(|row| format!("{} {}", row.name, row.status));
    let nodes = report.nodes.iter().map(|row| format!("{} {:?} {:?}", row.name, row.intent, row.health));
    rows.chain(deployments).chain(nodes).collect()
}

fn with_new_leader(scenario: &Scenario, at: Time) -> Scenario {
    let mut changed = scenario.clone();
    let place = changed.steps[0].location.clone();
    changed.steps.push(Step { at, location: place, action: Action::NewLeader });
    changed
}

#[test]
fn a_leader_replaced_at_any_event_boundary_continues_to_the_same_end() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    for story in STORIES {
        let text = fs::read_to_string(root.join(format!("{story}.yaml"))).unwrap();
        let scenario = Scenario::parse(story, &text).unwrap();
        let undisturbed = longshore_sim::run(&scenario);
        // Just before what happens at an instant, and just after it.
        let instants = undisturbed.timeline.iter().flat_map(|entry| [entry.at_ms, entry.at_ms + 1]);
        for at in instants.collect::<BTreeSet<u64>>() {
            let disturbed = longshore_sim::run(&with_new_leader(&scenario, Time(at)));
            assert!(disturbed.violations.is_empty(), "{story} at {at} ms: {:#?}", disturbed.violations);
            assert_eq!(end(&disturbed), end(&undisturbed), "{story}, with a new leader at {at} ms");
        }
    }
}

#[test]
fn whoever_decides_from_the_state_alone_after_every_event_leaves_the_same_record_to_the_byte() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let mut compared = 0;
    for path in files(&root) {
        let Ok(scenario) = Scenario::parse("story.yaml", &fs::read_to_string(&path).unwrap()) else { continue };
        // With random faults the streams depend on the number of messages, which differs between the runs.
        if scenario.faults.is_some() {
            continue;
        }
        let (plain, new_leaders) = (longshore_sim::run(&scenario), longshore_sim::run_with_new_leaders(&scenario));
        assert_eq!(plain.to_golden(), new_leaders.to_golden(), "{}", path.display());
        compared += 1;
    }
    assert!(compared > 100, "only {compared} scenarios were compared");
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("the folder can be listed").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.insert(path);
        }
    }
    found
}
