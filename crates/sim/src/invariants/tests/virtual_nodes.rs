//! Machines that run what the state does not know, and views that differ from the state.

use longshore_model::{Attempt, GroupKey, ReplicaKey, ServiceSpec, VolumeKey, replica::HeldVolume, volume::Sharing};

use super::*;
use crate::virtual_node::Outbox;

fn web() -> GroupKey {
    GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() }
}

fn key(index: u32, generation: u32) -> ReplicaKey {
    ReplicaKey { group: web(), slot: SlotKey::Index(SlotIndex(index)), generation: Generation(generation) }
}

/// Two nodes, with these replicas running.
fn virtual_nodes(running: &[(&str, ReplicaKey)]) -> BTreeMap<NodeName, VirtualNode> {
    let new = |name: &str| (NodeName::from(name), VirtualNode::new(name.into(), Arc::new(BTreeMap::new())));
    let mut virtual_nodes: BTreeMap<NodeName, VirtualNode> = ["a", "b"].into_iter().map(new).collect();
    for (node, key) in running {
        let virtual_node = virtual_nodes.get_mut(&NodeName::from(*node)).unwrap();
        let mut out = Outbox::default();
        virtual_node.run(key, Attempt(0), &ServiceSpec::default(), Time(0), &mut out);
        // The image is pulled, and the process starts.
        while let Some((at, timer)) = out.timers.pop() {
            virtual_node.fire(timer, at, &mut out);
        }
    }
    virtual_nodes
}

/// Both replicas hold a volume on `a`.
fn with_data() -> State {
    let key = VolumeKey { namespace: NamespaceName::default_namespace(), name: "data".into() };
    let volumes = vec![HeldVolume { key, sharing: Sharing::Deployment }];
    let mut state = running();
    let mut next = plan(Reservation { volumes, ..Reservation::default() }, [3, 4]);
    for item in &mut next.groups[0].items {
        if let PlanItem::Place(placement) = item {
            placement.key.generation = Generation(2);
        }
    }
    state.apply(Command::Commit(Box::new(next))).unwrap();
    state
}

#[test]
fn a_volume_in_use_on_two_machines_is_noticed_whatever_the_state_says() {
    let state = with_data();
    assert_eq!(fencing::check(&state, &virtual_nodes(&[("a", key(0, 2)), ("a", key(1, 2))])), Vec::<String>::new());
    let apart = fencing::check(&state, &virtual_nodes(&[("a", key(0, 2)), ("b", key(1, 2))]));
    assert_eq!(apart, ["data is mounted by shop-web-0 g2 on a and shop-web-1 g2 on b"]);
}

#[test]
fn a_slot_with_data_that_runs_twice_is_noticed() {
    let twice = fencing::check(&with_data(), &virtual_nodes(&[("a", key(0, 2)), ("b", key(0, 2))]));
    assert!(twice.contains(&"shop-web-0 g2 on a and shop-web-0 g2 on b run at once".to_owned()), "{twice:?}");
}

#[test]
fn what_a_machine_runs_or_lacks_at_the_end_is_noticed() {
    let state = running();
    assert_eq!(converged::check(&state, &virtual_nodes(&[("a", key(0, 1)), ("a", key(1, 1))])), Vec::<String>::new());
    let messages = converged::check(&state, &virtual_nodes(&[("a", key(0, 1)), ("b", key(7, 1))]));
    insta::assert_snapshot!(messages.join("\n"), @r"
    b has shop-web-7 g1 (Running, attempt 0), the state says None
    shop-web-1 g1 is running on a, which has no such container
    ");
}

#[test]
fn a_node_said_to_be_down_and_what_is_lost_at_the_end_are_noticed() {
    let mut state = running();
    state.apply(Command::SetHealth { node: "a".into(), health: Health::Down, at: Time(70) }).unwrap();
    let messages = converged::check(&state, &virtual_nodes(&[("a", key(0, 1)), ("a", key(1, 1))]));
    insta::assert_snapshot!(messages.join("\n"), @r"
    a is Down although its machine is on
    shop-web-0 g1 is still lost on a
    shop-web-1 g1 is still lost on a
    a has shop-web-0 g1 (Running, attempt 0), the state says Some((Attempt(0), Lost))
    a has shop-web-1 g1 (Running, attempt 0), the state says Some((Attempt(0), Lost))
    ");
}

#[test]
fn a_leader_that_missed_something_is_noticed() {
    let state = running();
    let mut view = rebuilt::view_from_state(&state);
    assert_eq!(rebuilt::check(&state, &mut view, Time(10_000)), Vec::<String>::new());
    let first = web().replica(&SlotKey::Index(SlotIndex(0)), Generation(1));
    view.apply(&longshore_model::Event::Stopping(first));
    assert_ne!(rebuilt::check(&state, &mut view, Time(10_000)), Vec::<String>::new());
}

#[test]
fn a_plan_that_a_new_leader_would_not_make_is_noticed() {
    let state = running();
    let made = longshore_scheduler::plan(&mut rebuilt::view_from_state(&state), state.index(), Time(10_000));
    assert_eq!(leader_change_diverges::check(&state, &made, Time(10_000)), None);
    let mut other = made;
    let stop = PlanItem::Stop(SlotKey::Index(SlotIndex(0)).generation(Generation(1)));
    other.groups.push(GroupPlan { group: web(), reservation: Arc::new(Reservation::default()), items: vec![stop] });
    assert!(leader_change_diverges::check(&state, &other, Time(10_000)).is_some());
}

#[test]
fn events_that_tell_another_story_than_the_state_are_noticed() {
    let state = running();
    let mut shadow = ShadowState::default();
    for event in state.events().into_iter().filter(|event| !matches!(event, longshore_model::Event::Placed { .. })) {
        shadow.apply(&event, &state);
    }
    let mut violations = Violations::default();
    shadow.check_everything(&state, Time(70), &mut violations);
    let messages: Vec<&str> = violations.into_list().into_iter().map(|broken| broken.invariant).collect();
    assert!(messages.contains(&"events"), "{messages:?}");
}
