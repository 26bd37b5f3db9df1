//! The benchmark's shortcuts are compared with the state machine, on a small cluster.

use longshore_model::{Command, DeploymentSpec, NamespaceName};
use longshore_store::State;

use super::{generate::Cluster, *};

fn options(memory: Memory) -> Options {
    Options {
        nodes: 10,
        services: 7,
        replicas: 100,
        zones: 3,
        memory,
        strategy: Strategy::Spread,
        repeat: 1,
        rollout: RolloutBench::Skip,
    }
}

#[test]
fn everything_is_placed_and_counted() {
    let result = run(&options(Memory::Counted));
    assert_eq!((result.replicas, result.placed), (100, 100));
    assert_eq!(run(&options(Memory::Ignored)).placed, 100);
}

#[test]
fn the_shortcut_from_plan_to_events_is_what_the_state_machine_does() {
    let cluster = Cluster::new(&options(Memory::Counted));
    let mut state = State::default();
    for event in cluster.events() {
        match event {
            Event::NodeChanged(node) => drop(state.apply(Command::Join(Box::new((*node).clone()))).unwrap()),
            Event::GroupChanged { group, spec, .. } => {
                let current = state.deployment(&group.namespace, &group.deployment);
                let mut all = current.map_or_else(DeploymentSpec::default, |known| known.current().spec.clone());
                all.services.insert(group.service, spec);
                let namespace = NamespaceName::default_namespace();
                let spec = Box::new(all);
                drop(
                    state
                        .apply(Command::Apply {
                            namespace,
                            deployment: group.deployment,
                            spec,
                            rerun: longshore_model::command::Rerun::IfChanged,
                        })
                        .unwrap(),
                );
            }
            _ => {}
        }
    }
    let plan = longshore_scheduler::plan(&mut cluster.view(), StateIndex(0), Time(5));
    let mut committed = state.apply(Command::Commit(Box::new(plan.clone()))).unwrap();
    // Services are applied one by one here, which begins rollouts; the benchmark has all services from the start.
    committed.retain(|event| !matches!(event, Event::SlotStepped { .. }));
    let mut shortcut = Vec::new();
    for part in plan.groups {
        effects::for_each_event(part, Time(5), &mut |event| shortcut.push(event));
    }
    assert_eq!(shortcut, committed);
}

#[test]
fn rolling_over_changes_every_replica_once() {
    let result = run(&Options { rollout: RolloutBench::Run, ..options(Memory::Ignored) });
    // Seven services of fourteen each; the remainder of the division is left out.
    assert_eq!(result.roll_steps, Some(98));
}

#[test]
fn one_replica_more_is_one_placement() {
    let cluster = Cluster::new(&options(Memory::Ignored));
    let mut view = cluster.view();
    settle(&mut view, Time(0));
    view.apply(&cluster.service(3).scaled_by(1));
    let plan = timed(&mut view, Time(1)).0;
    assert_eq!(plan.placements(), 1);
}
