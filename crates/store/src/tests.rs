//! Tests of the state machine. Plans are written by hand: the store decides nothing.

mod address_numbers;
mod rebalance;
mod settings;

use std::{net::Ipv6Addr, sync::Arc, time::Duration};

use longshore_model::{
    Assignment, Attempt, ClusterConfig, Command, DeploymentName, DeploymentSpec, DeploymentStatus, Event, Generation,
    GroupKey, GroupPlan, Health, Intent, NamespaceName, Node, NodeAttributes, NodeName, NodeNumber, Observation,
    Placement, Plan, PlanItem, Reason, ReplicaState, Reservation, RuntimeCode, ServiceKind, ServiceName, ServiceSpec,
    SlotIndex, SlotKey, Time, VolumeKey, VolumeName, Wait,
    node::NodeFingerprint,
    replica::Details,
    service::{Access, Mount, MountSource, Port, PortMode, Protocol},
    volume::Sharing,
};

use crate::{CommandError, State};

pub(crate) fn node(name: &str) -> Node {
    Node::new(name)
}

fn group(deployment: &str, service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: deployment.into(), service: service.into() }
}

fn slot(index: u32) -> SlotKey {
    SlotKey::Index(SlotIndex(index))
}

fn apply(deployment: &str, services: &[(&str, ServiceSpec)]) -> Command {
    let services = services.iter().map(|(name, spec)| (ServiceName::from(*name), Arc::new(spec.clone()))).collect();
    Command::Apply {
        namespace: NamespaceName::default_namespace(),
        deployment: DeploymentName::from(deployment),
        spec: Box::new(DeploymentSpec { services, ..DeploymentSpec::default() }),
        rerun: longshore_model::command::Rerun::IfChanged,
    }
}

fn replicas(count: u32) -> ServiceSpec {
    ServiceSpec { replicas: count, ..ServiceSpec::default() }
}

fn plan(group: &GroupKey, items: Vec<PlanItem>) -> Command {
    let part = GroupPlan { group: group.clone(), reservation: Arc::new(Reservation::default()), items };
    Command::Commit(Box::new(Plan { made_at: Time(50), groups: vec![part], ..Plan::default() }))
}

fn place(index: u32, generation: u32, node: &str) -> PlanItem {
    PlanItem::Place(Placement {
        key: slot(index).generation(Generation(generation)),
        node: node.into(),
        address: Ipv6Addr::from(u128::from(index * 100 + generation)),
        new_volumes: Vec::new(),
        devices: [(format!("acme/gpu/{node}"), 1)].into(),
        reservation: None,
        moved: None,
    })
}

fn observe(group: &GroupKey, index: u32, generation: u32, attempt: u32, state: ReplicaState, at: u64) -> Command {
    Command::Observe(Observation {
        key: group.replica(&slot(index), Generation(generation)),
        attempt: Attempt(attempt),
        placed_at: None,
        state,
        code: None,
        details: Details::new(),
        at: Time(at),
    })
}

/// Two nodes, and `shop/web` with two replicas placed on them.
fn shop() -> (State, GroupKey) {
    let mut state = State::default();
    let web = group("shop", "web");
    for command in [
        Command::Join(Box::new(node("a"))),
        Command::Join(Box::new(node("b"))),
        apply("shop", &[("web", replicas(2))]),
        plan(&web, vec![place(0, 1, "a"), place(1, 1, "b")]),
    ] {
        state.apply(command).unwrap();
    }
    (state, web)
}

fn status(state: &State) -> (DeploymentStatus, Vec<&'static str>) {
    let report = state.status(&NamespaceName::default_namespace(), &"shop".into()).unwrap();
    (report.status, report.reasons)
}

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events
        .iter()
        .map(|event| match event {
            Event::Configured(_) => "configured",
            Event::NodeChanged(_) => "node changed",
            Event::NodeGone(_) => "node gone",
            Event::NodeRemoved { .. } => "node removed",
            Event::NodeForgotten(_) => "node forgotten",
            Event::GroupChanged { .. } => "group changed",
            Event::GroupRemoved(_) => "group unwanted",
            Event::GroupGone(_) => "group gone",
            Event::SlotOpened { .. } => "slot opened",
            Event::SlotWaits { .. } => "slot waits",
            Event::SlotClosing { .. } => "slot closing",
            Event::SlotGone { .. } => "slot gone",
            Event::Placed { .. } => "placed",
            Event::Rebalanced(_) => "rebalanced",
            Event::EvenOutRequested(_) => "even out asked",
            Event::EvenOutDone(_) => "evened out",
            Event::Stopping(_) => "stopping",
            Event::Restarting { .. } => "restarting",
            Event::Observed { .. } => "observed",
            Event::Released { .. } => "released",
            Event::FailureCounted { .. } => "failure counted",
            Event::AddressCoolingDown { .. } => "address resting",
            Event::VolumeCreated(_) => "volume made",
            Event::VolumeGone(_) => "volume gone",
            Event::SecretSet { .. } => "secret set",
            Event::SecretGone { .. } => "secret gone",
            Event::AccessChanged => "access changed",
            Event::QuotaSet { .. } => "quota set",
            Event::Rescheduled { .. } => "rescheduled",
            Event::Collected { .. } => "collected",
            Event::EvacuationChanged(_) => "evacuation changed",
            Event::GroupRolloutChanged { .. } => "group rolls",
            Event::RolloutChanged { .. } => "rollout changed",
            Event::SlotStepped { .. } => "slot stepped",
            Event::DeploymentGone { .. } => "deployment gone",
            Event::SlotStartsAgain(_) => "slot starts again",
            Event::DeploymentStopped { .. } => "deployment stopped",
            Event::DeploymentStarted { .. } => "deployment started",
        })
        .collect()
}

#[test]
fn committing_a_plan_twice_changes_nothing_the_second_time() {
    let (mut state, web) = shop();
    let wait = Wait { slots: vec![slot(2)], reason: Reason::NoCapacityMemory, details: Details::new() };
    let items = vec![
        place(0, 2, "b"),
        PlanItem::Stop(slot(0).generation(Generation(1))),
        PlanItem::Open(slot(2)),
        PlanItem::Wait(wait),
        PlanItem::Restart { key: slot(1).generation(Generation(1)), attempt: Attempt(1) },
    ];
    let once = plan(&web, items);
    let events = state.apply(once.clone()).unwrap();
    assert_eq!(kinds(&events), ["placed", "stopping", "slot opened", "slot waits", "restarting"]);
    let before = state.clone();
    assert_eq!(state.apply(once), Ok(Vec::new()));
    assert_eq!(state, before);
}

#[test]
fn devices_stay_with_their_generation_and_are_in_the_state_events() {
    let (state, web) = shop();
    let node_and_devices = |assignment: &Assignment| (assignment.node.clone(), assignment.devices.clone());
    let emitted = state.events().into_iter().find_map(|event| match event {
        Event::Placed { key, assignment } if (&key.group, &key.slot) == (&web, &slot(0)) => Some(assignment),
        _ => None,
    });
    let kept = &state.group(&web).unwrap().slots[&slot(0)].replicas[0].assignment;
    assert_eq!(node_and_devices(kept), ("a".into(), [("acme/gpu/a".to_owned(), 1)].into()));
    assert_eq!(emitted.as_ref().map(node_and_devices), Some(node_and_devices(kept)));
}

#[test]
fn a_stale_placement_is_dropped() {
    let (mut state, web) = shop();
    for stale in [place(0, 1, "b"), place(0, 3, "b"), place(0, 2, "gone")] {
        assert_eq!(state.apply(plan(&web, vec![stale])), Ok(Vec::new()));
    }
    assert_eq!(state.apply(plan(&group("shop", "unknown"), vec![place(0, 1, "a")])), Ok(Vec::new()));
}

#[test]
fn the_index_of_a_removed_slot_is_never_used_again() {
    let (mut state, web) = shop();
    state.apply(plan(&web, vec![PlanItem::Close(slot(1))])).unwrap();
    let events = state.apply(observe(&web, 1, 1, 0, ReplicaState::Stopped, 2000)).unwrap();
    assert_eq!(kinds(&events), ["released", "address resting", "slot gone"]);
    assert_eq!(state.apply(plan(&web, vec![place(1, 1, "b")])), Ok(Vec::new()));
    assert_eq!(state.group(&web).unwrap().next_index, SlotIndex(2));
}

#[test]
fn a_service_that_returns_to_the_manifest_continues_its_slot_counter() {
    let (mut state, web) = shop();
    let events = state.apply(apply("shop", &[("api", replicas(1))])).unwrap();
    assert_eq!(kinds(&events), ["rollout changed", "group unwanted", "group changed"]);
    state.apply(plan(&web, vec![PlanItem::Close(slot(0)), PlanItem::Close(slot(1))])).unwrap();
    state.apply(observe(&web, 0, 1, 0, ReplicaState::Stopped, 2000)).unwrap();
    let last = state.apply(observe(&web, 1, 1, 0, ReplicaState::Stopped, 2000)).unwrap();
    assert_eq!(kinds(&last), ["released", "address resting", "slot gone", "group gone"]);
    state.apply(apply("shop", &[("web", replicas(2))])).unwrap();
    assert_eq!(state.group(&web).unwrap().next_index, SlotIndex(2));
}

#[test]
fn a_removed_deployment_is_dropped_when_its_last_replica_has_stopped() {
    let (mut state, web) = shop();
    let namespace = NamespaceName::default_namespace();
    state.apply(Command::Remove { namespace: namespace.clone(), deployment: "shop".into() }).unwrap();
    assert_eq!(status(&state), (DeploymentStatus::Progressing, vec!["removing"]));
    state.apply(plan(&web, vec![PlanItem::Close(slot(0)), PlanItem::Close(slot(1))])).unwrap();
    state.apply(observe(&web, 0, 1, 0, ReplicaState::Stopped, 2000)).unwrap();
    assert!(state.deployment(&namespace, &"shop".into()).is_some());
    state.apply(observe(&web, 1, 1, 0, ReplicaState::Stopped, 2000)).unwrap();
    assert!(state.deployment(&namespace, &"shop".into()).is_none());
    assert_eq!(state.groups().count(), 0);
}

#[test]
fn an_observation_of_another_generation_or_attempt_is_ignored() {
    let (mut state, web) = shop();
    for other in [(0, 2, 0), (0, 1, 1), (5, 1, 0)] {
        let seen = observe(&web, other.0, other.1, other.2, ReplicaState::Running, 2000);
        assert_eq!(state.apply(seen), Ok(Vec::new()));
    }
}

#[test]
fn an_observation_of_a_previous_incarnation_is_ignored() {
    let (mut state, web) = shop();
    let namespace = NamespaceName::default_namespace();
    let seen_of = |life: u64, state: ReplicaState| {
        let Command::Observe(seen) = observe(&web, 2, 1, 0, state, 9000) else { unreachable!("it observes") };
        Command::Observe(Observation { placed_at: Some(Time(life)), ..seen })
    };
    state.apply(Command::Remove { namespace, deployment: "shop".into() }).unwrap();
    state.apply(plan(&web, vec![PlanItem::Close(slot(0)), PlanItem::Close(slot(1))])).unwrap();
    state.apply(observe(&web, 0, 1, 0, ReplicaState::Stopped, 2000)).unwrap();
    state.apply(observe(&web, 1, 1, 0, ReplicaState::Stopped, 2000)).unwrap();

    state.apply(apply("shop", &[("web", replicas(1))])).unwrap();
    let Command::Commit(mut again) = plan(&web, vec![place(2, 1, "a")]) else { unreachable!("it commits") };
    again.made_at = Time(5000);
    state.apply(Command::Commit(again)).unwrap();

    for late in [ReplicaState::Running, ReplicaState::Failed, ReplicaState::Stopped] {
        assert_eq!(state.apply(seen_of(50, late)), Ok(Vec::new()), "{late:?}");
    }
    assert_eq!(kinds(&state.apply(seen_of(5000, ReplicaState::Running)).unwrap()), ["observed"]);
}

#[test]
fn a_stopping_replica_cannot_become_live_again() {
    let (mut state, web) = shop();
    state.apply(plan(&web, vec![PlanItem::Stop(slot(0).generation(Generation(1)))])).unwrap();
    assert_eq!(state.apply(observe(&web, 0, 1, 0, ReplicaState::Running, 2000)), Ok(Vec::new()));
}

#[test]
fn failures_add_up_until_a_stable_run() {
    let (mut state, web) = shop();
    let failures = |state: &State| state.replicas().next().unwrap().2.failures;
    state.apply(observe(&web, 0, 1, 0, ReplicaState::Failed, 1000)).unwrap();
    let restart = |attempt| {
        plan(&web, vec![PlanItem::Restart { key: slot(0).generation(Generation(1)), attempt: Attempt(attempt) }])
    };
    state.apply(restart(1)).unwrap();
    state.apply(observe(&web, 0, 1, 1, ReplicaState::Running, 2000)).unwrap();
    let events = state.apply(observe(&web, 0, 1, 1, ReplicaState::Failed, 6000)).unwrap();
    assert_eq!(kinds(&events), ["observed", "failure counted"]);
    assert_eq!(failures(&state), 2);
    state.apply(restart(2)).unwrap();
    state.apply(observe(&web, 0, 1, 2, ReplicaState::Running, 10_000)).unwrap();
    let events = state.apply(observe(&web, 0, 1, 2, ReplicaState::Failed, 15_000)).unwrap();
    assert_eq!(kinds(&events), ["observed", "failure counted"]);
    assert_eq!(failures(&state), 1);
}

#[test]
fn replicas_on_a_node_that_goes_down_are_lost_but_terminal_ones_are_not() {
    let (mut state, web) = shop();
    state.apply(observe(&web, 0, 1, 0, ReplicaState::Running, 2000)).unwrap();
    let down = |node: &str| Command::SetHealth { node: node.into(), health: Health::Down, at: Time(69_000) };
    let events = state.apply(down("a")).unwrap();
    assert_eq!(kinds(&events), ["observed", "node changed"]);
    let lost = state.replicas().next().unwrap().2;
    assert_eq!((lost.state, lost.code), (ReplicaState::Lost, Some(RuntimeCode::NodeLost)));
    assert_eq!(state.apply(down("a")), Ok(Vec::new()));

    let give_up = PlanItem::GiveUp { key: slot(1).generation(Generation(1)), code: RuntimeCode::RestartExhausted };
    state.apply(plan(&web, vec![give_up])).unwrap();
    assert_eq!(kinds(&state.apply(down("b")).unwrap()), ["node changed"]);
}

#[test]
fn a_lost_generation_occupies_its_node_until_it_is_seen_stopped() {
    let (mut state, web) = shop();
    state.apply(Command::SetHealth { node: "a".into(), health: Health::Down, at: Time(69_000) }).unwrap();
    let replace = vec![place(0, 2, "b"), PlanItem::Stop(slot(0).generation(Generation(1)))];
    state.apply(plan(&web, replace)).unwrap();
    let states: Vec<ReplicaState> = state.replicas().map(|(_, _, replica)| replica.state).collect();
    assert_eq!(states, [ReplicaState::Lost, ReplicaState::Pending, ReplicaState::Pending]);
    state.apply(observe(&web, 0, 2, 0, ReplicaState::Running, 70_000)).unwrap();
    state.apply(observe(&web, 1, 1, 0, ReplicaState::Running, 70_000)).unwrap();
    assert_eq!(status(&state), (DeploymentStatus::Active, vec![]));
    let events = state.apply(observe(&web, 0, 1, 0, ReplicaState::Stopped, 300_000)).unwrap();
    assert_eq!(kinds(&events), ["released", "address resting"]);
}

#[test]
fn a_node_that_is_removed_releases_everything_and_its_number_is_not_reused() {
    let (mut state, web) = shop();
    let events = state.apply(Command::SetIntent { node: "a".into(), intent: Intent::Removed, at: Time(9) }).unwrap();
    assert_eq!(kinds(&events), ["released", "address resting", "node gone", "node removed"]);
    assert_eq!(state.group(&web).unwrap().slots[&slot(0)].newest, Generation(1));
    state.apply(Command::Join(Box::new(node("a")))).unwrap();
    assert_eq!(state.node(&"a".into()).unwrap().number, NodeNumber(3));
}

#[test]
fn the_name_of_a_live_node_is_taken_and_a_returning_node_keeps_the_operators_settings() {
    let (mut state, _) = shop();
    let again = || Command::Join(Box::new(node("a")));
    assert_eq!(state.apply(again()).unwrap_err().code(), "duplicate_node");
    state.apply(Command::SetIntent { node: "a".into(), intent: Intent::Paused, at: Time(9) }).unwrap();
    state.apply(Command::SetHealth { node: "a".into(), health: Health::Down, at: Time(1) }).unwrap();
    state.apply(again()).unwrap();
    let back = state.node(&"a".into()).unwrap();
    assert_eq!((back.intent, back.health, back.number), (Intent::Paused, Health::Ready, NodeNumber(1)));
}

#[test]
fn a_restart_with_the_same_flags_does_not_undo_what_was_set_since() {
    let pool = |name: &str| NodeAttributes { pool: Some(name.into()), ..NodeAttributes::default() };
    let labelled = |zone: &str| NodeAttributes {
        labels: std::collections::BTreeMap::from([("zone".to_owned(), zone.to_owned())]),
        reserved_memory_bytes: Some(1 << 30),
        ..pool("batch")
    };
    let fingerprint = |flags: NodeAttributes| NodeFingerprint {
        platform: longshore_model::Platform::new("linux", "amd64"),
        capacity: longshore_model::Capacity { memory_bytes: 4 << 30, ..longshore_model::Capacity::default() },
        drivers: std::collections::BTreeSet::new(),
        engine_labels: std::collections::BTreeMap::new(),
        plugins: std::collections::BTreeSet::new(),
        flags,
        network: None,
    };
    let refresh = |flags| Command::Refresh { node: "a".into(), fingerprint: Box::new(fingerprint(flags)) };
    let mut state = State::default();
    state.apply(Command::Join(Box::new(Node { flags: labelled("east"), ..node("a") }))).unwrap();
    let known = |state: &State| Node::clone(state.node(&"a".into()).unwrap());
    assert_eq!((known(&state).pool.as_str(), known(&state).labels["zone"].as_str()), ("batch", "east"));
    assert_eq!(known(&state).reserved.memory_bytes, 1 << 30);

    let set = Command::SetNodeAttributes { node: "a".into(), attributes: Box::new(pool("web")), at: Time(1) };
    state.apply(set).unwrap();
    state.apply(refresh(labelled("east"))).unwrap();
    assert_eq!(known(&state).pool.as_str(), "web");
    state.apply(refresh(labelled("west"))).unwrap();
    assert_eq!((known(&state).pool.as_str(), known(&state).labels["zone"].as_str()), ("web", "west"));
    state.apply(refresh(pool("gpu"))).unwrap();
    assert_eq!((known(&state).pool.as_str(), known(&state).labels.get("zone")), ("gpu", None));
    assert_eq!(known(&state).allocatable_memory(), 3 << 30, "what was reserved stays until it is set anew");
}

fn with_volume(replicas: u32) -> ServiceSpec {
    let key = VolumeKey { namespace: NamespaceName::default_namespace(), name: VolumeName::from("shop_data") };
    let source = MountSource::Volume { key, sharing: Sharing::Deployment, driver: None };
    let mount =
        Mount { source, target: "/data".into(), access: Access::ReadOnly, options: std::collections::BTreeMap::new() };
    ServiceSpec { replicas, mounts: vec![mount], ..ServiceSpec::default() }
}

#[test]
fn a_service_with_a_volume_has_one_replica_at_apply_and_at_scale() {
    let mut state = State::default();
    assert_eq!(
        state.apply(apply("shop", &[("db", with_volume(2))])).unwrap_err().to_string(),
        "service `db` mounts the volume `shop_data` and cannot have 2 replicas"
    );
    state.apply(apply("shop", &[("db", with_volume(1))])).unwrap();
    let refused = state.apply(Command::Scale { group: group("shop", "db"), replicas: 3 }).unwrap_err();
    assert_eq!(refused.code(), "volume_needs_one_replica");
    state.apply(Command::Scale { group: group("shop", "db"), replicas: 0 }).unwrap();
    let global = ServiceSpec { kind: ServiceKind::System, ..with_volume(1) };
    state.apply(apply("logs", &[("agent", global)])).unwrap();
}

#[test]
fn scaling_creates_a_revision_that_differs_only_in_the_count() {
    let (mut state, web) = shop();
    let events = state.apply(Command::Scale { group: web.clone(), replicas: 5 }).unwrap();
    assert_eq!(kinds(&events), ["rollout changed", "group changed"]);
    let deployment = state.deployment(&web.namespace, &web.deployment).unwrap();
    assert_eq!(deployment.revisions.len(), 2);
    assert_eq!(*deployment.current().spec.services[&web.service], replicas(5));
    assert_eq!(state.apply(Command::Scale { group: web, replicas: 5 }), Ok(Vec::new()));
}

#[test]
fn a_global_service_cannot_be_scaled() {
    let mut state = State::default();
    let agent = ServiceSpec { kind: ServiceKind::System, ..ServiceSpec::default() };
    state.apply(apply("shop", &[("agent", agent)])).unwrap();
    assert_eq!(
        state.apply(Command::Scale { group: group("shop", "agent"), replicas: 2 }).unwrap_err().to_string(),
        "service \"agent\" uses placement=global; remove replicas (global runs one replica per ready node)"
    );
    let unknown = state.apply(Command::Scale { group: group("shop", "web"), replicas: 2 }).unwrap_err();
    assert_eq!(unknown, CommandError::UnknownService { deployment: "shop".into(), service: "web".into() });
}

fn publishing(published: u16, mode: PortMode) -> ServiceSpec {
    let port = Port { target: 80, published: Some(published), protocol: Protocol::Tcp, mode, host_ip: None };
    ServiceSpec { ports: vec![port], ..ServiceSpec::default() }
}

#[test]
fn an_ingress_port_belongs_to_one_service() {
    let mut state = State::default();
    state.apply(apply("shop", &[("web", publishing(80, PortMode::Ingress))])).unwrap();
    let refused = state.apply(apply("blog", &[("web", publishing(80, PortMode::Ingress))])).unwrap_err();
    assert_eq!(refused.to_string(), "port 80/tcp of service `web` is already published by `shop-web`");
    state.apply(apply("blog", &[("web", publishing(80, PortMode::Host))])).unwrap();
    let both = [("a", publishing(81, PortMode::Ingress)), ("b", publishing(81, PortMode::Ingress))];
    assert_eq!(state.apply(apply("twice", &both)).unwrap_err().code(), "ingress_port_taken");
    state.apply(apply("shop", &[("web", publishing(80, PortMode::Ingress))])).unwrap();
    let moved = [("web", replicas(1)), ("front", publishing(80, PortMode::Ingress))];
    state.apply(apply("shop", &moved)).unwrap();
}

#[test]
fn two_services_with_the_same_replica_ids_are_refused() {
    let mut state = State::default();
    state.apply(apply("shop", &[("web-api", replicas(1))])).unwrap();
    let refused = state.apply(apply("shop-web", &[("api", replicas(1))])).unwrap_err();
    assert!(matches!(&refused, CommandError::ReplicaIdConflict { printed, .. } if printed == "shop-web-api-0"));
}

#[test]
fn a_node_name_that_gives_a_global_replica_the_id_of_another_is_refused() {
    let global = ServiceSpec { kind: ServiceKind::System, ..ServiceSpec::default() };
    let mut state = State::default();
    state.apply(apply("shop", &[("node", global), ("node-web", replicas(1))])).unwrap();
    state.apply(Command::Join(Box::new(node("web")))).unwrap();
    assert_eq!(state.apply(Command::Join(Box::new(node("web-0")))).unwrap_err().code(), "replica_id_conflict");
}

#[test]
fn ten_revisions_are_kept_including_the_one_a_rollout_started_from() {
    let mut state = State::default();
    for count in 1..=12 {
        state.apply(apply("shop", &[("web", replicas(count))])).unwrap();
    }
    let deployment = state.deployment(&NamespaceName::default_namespace(), &"shop".into()).unwrap();
    let numbers: Vec<u64> = deployment.revisions.iter().map(|revision| revision.number.0).collect();
    assert_eq!(numbers, [1].into_iter().chain(4..=12).collect::<Vec<u64>>());
}

#[test]
fn the_same_manifest_again_creates_no_revision_and_resets_failures() {
    let (mut state, web) = shop();
    let again = || apply("shop", &[("web", replicas(2))]);
    assert_eq!(state.apply(again()), Ok(Vec::new()), "nothing happened");
    let give_up = PlanItem::GiveUp { key: slot(0).generation(Generation(1)), code: RuntimeCode::RestartExhausted };
    state.apply(plan(&web, vec![give_up])).unwrap();
    assert_ne!(state.apply(again()), Ok(Vec::new()), "it is tried again");
    let deployment = state.deployment(&NamespaceName::default_namespace(), &"shop".into()).unwrap();
    assert_eq!((deployment.in_force.0, deployment.revisions.len()), (1, 1));
    state.apply(apply("shop", &[("web", replicas(3))])).unwrap();
    let deployment = state.deployment(&NamespaceName::default_namespace(), &"shop".into()).unwrap();
    assert_eq!((deployment.in_force.0, deployment.revisions.len()), (2, 2));
}

#[test]
fn the_status_is_active_only_when_everything_runs() {
    let (mut state, web) = shop();
    assert_eq!(status(&state), (DeploymentStatus::Progressing, vec!["pending"]));
    state.apply(observe(&web, 0, 1, 0, ReplicaState::Running, 2000)).unwrap();
    assert_eq!(status(&state), (DeploymentStatus::Progressing, vec!["pending"]));
    state.apply(observe(&web, 1, 1, 0, ReplicaState::Running, 2000)).unwrap();
    assert_eq!(status(&state), (DeploymentStatus::Active, vec![]));
    state.apply(Command::Scale { group: web.clone(), replicas: 3 }).unwrap();
    assert_eq!(status(&state).0, DeploymentStatus::Progressing);
    let wait = Wait { slots: vec![slot(2)], reason: Reason::NoCapacityMemory, details: Details::new() };
    state.apply(plan(&web, vec![PlanItem::Open(slot(2)), PlanItem::Wait(wait)])).unwrap();
    assert_eq!(status(&state), (DeploymentStatus::Degraded, vec!["no_capacity_memory", "rollout_in_progress"]));
}

#[test]
fn a_replica_behind_an_unreachable_engine_counts_as_running_but_the_deployment_is_not_active() {
    let (mut state, web) = shop();
    for index in [0, 1] {
        state.apply(observe(&web, index, 1, 0, ReplicaState::Running, 2000)).unwrap();
    }
    let unseen = |code| {
        let Command::Observe(seen) = observe(&web, 1, 1, 0, ReplicaState::Running, 3000) else { unreachable!() };
        Command::Observe(Observation { code, ..seen })
    };
    state.apply(unseen(Some(RuntimeCode::EngineUnreachable))).unwrap();
    assert_eq!(status(&state), (DeploymentStatus::Degraded, vec!["engine_unreachable"]));
    let replica = &state.group(&web).unwrap().slots[&slot(1)].replicas[0];
    assert_eq!((replica.state, replica.since, replica.failures), (ReplicaState::Running, Time(2000), 0));
    state.apply(unseen(None)).unwrap();
    assert_eq!(status(&state), (DeploymentStatus::Active, vec![]));
}

#[test]
fn a_deployment_with_nothing_placed_is_pending_and_one_with_exhausted_restarts_has_failed() {
    let mut state = State::default();
    let web = group("shop", "web");
    state.apply(apply("shop", &[("web", replicas(1))])).unwrap();
    let wait = Wait { slots: vec![slot(0)], reason: Reason::NoNodesActive, details: Details::new() };
    state.apply(plan(&web, vec![PlanItem::Open(slot(0)), PlanItem::Wait(wait)])).unwrap();
    assert_eq!(status(&state), (DeploymentStatus::Pending, vec!["no_nodes_active"]));
    state.apply(Command::Join(Box::new(node("a")))).unwrap();
    let give_up = PlanItem::GiveUp { key: slot(0).generation(Generation(1)), code: RuntimeCode::RestartExhausted };
    state.apply(plan(&web, vec![place(0, 1, "a"), give_up])).unwrap();
    assert_eq!(status(&state), (DeploymentStatus::Failed, vec!["restart_exhausted"]));
}

#[test]
fn the_same_commands_give_the_same_state_and_its_events_are_complete() {
    let ((one, _), (other, _)) = (shop(), shop());
    assert_eq!(one, other);
    assert_eq!(
        kinds(&one.events()),
        [
            "configured",
            "node changed",
            "node changed",
            "group changed",
            "slot opened",
            "placed",
            "slot opened",
            "placed"
        ]
    );
}

#[test]
fn addresses_stay_in_cooldown_for_the_configured_time() {
    let (mut state, web) = shop();
    state
        .apply(Command::Configure(ClusterConfig {
            address_cooldown: Duration::from_mins(1),
            ..ClusterConfig::default()
        }))
        .unwrap();
    state.apply(plan(&web, vec![PlanItem::Close(slot(0)), PlanItem::Close(slot(1))])).unwrap();
    state.apply(observe(&web, 0, 1, 0, ReplicaState::Stopped, 1000)).unwrap();
    state.apply(observe(&web, 1, 1, 0, ReplicaState::Stopped, 61_000)).unwrap();
    let resting = state.events().iter().filter(|event| matches!(event, Event::AddressCoolingDown { .. })).count();
    assert_eq!(resting, 1);
}

#[test]
fn a_secret_version_only_increases() {
    let mut state = State::default();
    let put =
        |version| Command::PutSecret { namespace: NamespaceName::default_namespace(), name: "db".into(), version };
    state.apply(put(2)).unwrap();
    assert_eq!(state.apply(put(2)), Ok(Vec::new()));
    assert_eq!(state.apply(put(1)).unwrap_err().code(), "secret_version_regression");
}

#[test]
fn the_error_names_the_unknown_node() {
    let mut state = State::default();
    let refused =
        state.apply(Command::SetIntent { node: NodeName::from("x"), intent: Intent::Paused, at: Time(9) }).unwrap_err();
    assert_eq!(refused.to_string(), "there is no node `x`");
}
