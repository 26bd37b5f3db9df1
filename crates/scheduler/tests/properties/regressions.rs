//! Regressions that the properties found, one test each.

mod dependencies;
mod jobs;
mod quotas;
mod rollouts;

use std::{sync::Arc, time::Duration};

use longshore_model::{
    Attribute, Capacity, Command, Constraint, Driver, Health, Intent, NamespaceName, Node, NodeName, Operator,
    PlanItem, PoolName, Reason, ReplicaState, ServiceKind, ServiceSpec, Slot, SlotIndex, SlotKey, Strategy, VolumeKey,
    VolumeName,
    replica::DesiredState,
    service::{
        Access, Batching, Companion, DistinctProperty, Mount, MountSource, PoolSelector, RestartCondition, SpecHash,
        Strength, UpdateOrder,
    },
    settings::Preemption,
    units::{GIB, MIB},
    volume::Sharing,
};
use longshore_scheduler::{explain_placed, plan};

use super::{
    histories::{Manifest, Step, Target},
    limits,
    random_nodes::{Terse, node_name, plain_node},
    random_services::group_key,
    reference_usage::ReferenceUsage,
    world::{World, placements},
};

/// A service that uses most of a plain node's 4 GiB.
fn large() -> ServiceSpec {
    let mut spec = ServiceSpec::default();
    spec.resources.memory_limit_bytes = Some(3000 * MIB);
    spec
}

/// A service with a volume.
fn with_volume(name: &str) -> ServiceSpec {
    let key = VolumeKey { namespace: NamespaceName::default_namespace(), name: VolumeName::from(name) };
    let source = MountSource::Volume { key, sharing: Sharing::Deployment, driver: None };
    let (target, options) = ("/data".to_owned(), std::collections::BTreeMap::new());
    ServiceSpec { mounts: vec![Mount { source, target, access: Access::ReadWrite, options }], ..ServiceSpec::default() }
}

/// A service with one replica on every node.
fn global() -> ServiceSpec {
    let mut spec = ServiceSpec { kind: ServiceKind::System, ..ServiceSpec::default() };
    spec.placement.strategy = Strategy::Global;
    spec
}

/// The same service with another spec hash and stop-first updates.
fn changed(spec: ServiceSpec) -> ServiceSpec {
    let mut spec = ServiceSpec { spec_hash: SpecHash("changed".into()), ..spec };
    spec.update.order = Some(UpdateOrder::StopFirst);
    spec
}

/// A manifest whose only service is `web`.
fn web(spec: ServiceSpec) -> Manifest {
    vec![(2, Terse(Arc::new(spec)))]
}

/// A cluster of plain nodes, n0 first.
fn cluster(nodes: u8) -> World {
    let mut world = World::default();
    for name in 0..nodes {
        world.join(name, &plain_node());
    }
    world
}

/// The slots of a deployment's `web`.
fn slots(world: &World, deployment: &str) -> Vec<Slot> {
    let group = world.state.group(&group_key(deployment, "web"));
    group.map(|group| group.slots.values().cloned().collect()).unwrap_or_default()
}

/// Why the first slot of a deployment's `web` has no node.
fn reason(world: &World, deployment: &str) -> Option<Reason> {
    slots(world, deployment).first().and_then(|slot| slot.waiting)
}

fn fail(world: &mut World, node: u8) {
    world.run(Command::SetHealth { node: node_name(node), health: Health::Down, at: world.now });
}

fn intend(world: &mut World, node: u8, intent: Intent) {
    world.run(Command::SetIntent { node: node_name(node), intent, at: world.now });
}

#[test]
fn a_completed_job_that_is_scaled_away_gives_its_memory_back_once() {
    let mut world = cluster(1);
    world.apply("shop", &web(ServiceSpec { kind: ServiceKind::Batch, ..large() }));
    world.decide();
    world.act(&Step::Observe(0, ReplicaState::Completed, Target::Current));
    world.apply("wiki", &web(large()));
    world.decide();
    world.act(&Step::Remove(1));
    world.act(&Step::Decide);
    world.act(&Step::Settle);
    world.apply("blog", &web(large()));
    let (_, events) = world.decide();
    limits::check(&world.state, &ReferenceUsage::of(&world.state, world.now), &events);
    assert_eq!(reason(&world, "blog"), Some(Reason::NoCapacityMemory));
}

#[test]
fn a_completed_job_that_becomes_a_service_does_not_reuse_released_memory() {
    let mut world = cluster(1);
    let job = ServiceSpec { kind: ServiceKind::Batch, ..large() };
    world.apply("shop", &web(job.clone()));
    world.decide();
    world.act(&Step::Observe(0, ReplicaState::Completed, Target::Current));
    world.apply("wiki", &web(large()));
    world.decide();
    world.apply("shop", &web(changed(ServiceSpec { kind: ServiceKind::Service, ..job })));
    let (_, events) = world.decide();
    limits::check(&world.state, &ReferenceUsage::of(&world.state, world.now), &events);
    assert!(ReferenceUsage::of(&world.state, world.now).on(&node_name(0)).memory_bytes <= 4096 * MIB);
}

#[test]
fn a_job_that_completed_is_not_run_again_when_its_node_is_lost() {
    let mut world = cluster(2);
    world.apply("shop", &web(ServiceSpec { kind: ServiceKind::Batch, ..ServiceSpec::default() }));
    world.decide();
    world.act(&Step::Observe(0, ReplicaState::Completed, Target::Current));
    fail(&mut world, 0);
    assert!(world.decide().0.is_empty());
}

#[test]
fn a_volume_on_a_removed_node_is_waited_for_and_no_new_node_takes_it() {
    let mut world = cluster(1);
    world.apply("shop", &web(with_volume("data")));
    world.decide();
    intend(&mut world, 0, Intent::Removed);
    world.join(1, &plain_node());
    world.decide();
    assert_eq!(reason(&world, "shop"), Some(Reason::VolumeHomeNodeOffline));
    let mut rebuilt = world.rebuilt();
    assert!(plan(&mut rebuilt, world.state.index(), world.now).is_empty());
}

#[test]
fn a_replica_observed_again_has_no_waiting_reason() {
    let mut world = cluster(1);
    world.apply("shop", &web(with_volume("data")));
    world.decide();
    fail(&mut world, 0);
    world.decide();
    assert_eq!(reason(&world, "shop"), Some(Reason::VolumeHomeNodeOffline));
    world.act(&Step::Health(0, Health::Ready));
    world.act(&Step::Settle);
    assert_eq!(reason(&world, "shop"), None);
}

#[test]
fn a_volume_of_another_deployment_has_one_holder() {
    let mut world = cluster(1);
    world.apply("blog", &web(with_volume("data")));
    world.decide();
    world.act(&Step::Remove(0));
    world.decide();
    world.act(&Step::Settle);
    let spec = || Terse(Arc::new(with_volume("data")));
    world.apply("shop", &vec![(0, spec()), (2, spec())]);
    world.decide();
    assert_eq!(reason(&world, "shop"), Some(Reason::VolumeInUse));
}

#[test]
fn new_settings_do_not_restore_a_removed_node_of_the_same_name() {
    let mut world = cluster(2);
    intend(&mut world, 1, Intent::Removed);
    intend(&mut world, 0, Intent::Removed);
    let small = Capacity { memory_bytes: 64 * MIB, ..plain_node().capacity };
    world.join(1, &Node { capacity: small, ..plain_node() });
    world.act(&Step::Configure {
        default_memory_bytes: 0,
        cpu_overcommit_millionths: 1_000_000,
        preemption: Preemption::Off,
    });
    world.apply("shop", &web(large()));
    world.decide();
    assert_eq!(reason(&world, "shop"), Some(Reason::NoCapacityMemory));
}

#[test]
fn a_service_that_becomes_global_and_back_leaves_no_slot_behind() {
    let mut world = cluster(2);
    world.apply("shop", &web(ServiceSpec { replicas: 3, ..ServiceSpec::default() }));
    world.decide();
    let names = |world: &World| -> Vec<SlotKey> {
        let open = slots(world, "shop").into_iter().filter(|slot| slot.desired == DesiredState::Run);
        open.map(|slot| slot.key).collect()
    };
    world.apply("shop", &web(global()));
    world.decide();
    assert_eq!(names(&world), [0, 1].map(|node| SlotKey::Node(node_name(node))));
    world.apply("shop", &web(ServiceSpec::default()));
    world.decide();
    assert!(matches!(names(&world)[..], [SlotKey::Index(_)]));
}

#[test]
fn a_lost_replica_is_stopped_by_the_plan_that_replaces_it() {
    let mut world = cluster(2);
    world.apply("shop", &web(ServiceSpec::default()));
    world.decide();
    fail(&mut world, 0);
    let (plan, _) = world.decide();
    let stops = plan.groups[0].items.iter().filter(|item| matches!(item, PlanItem::Stop(_)));
    assert_eq!((stops.count(), placements(&plan, &group_key("shop", "web")).len()), (1, 1));
    assert!(world.plan().is_empty());
}

#[test]
fn waiting_reasons_are_updated_by_the_plan_that_creates_a_volume() {
    let mut world = World::default();
    let cramped = Capacity { addresses: Some(1), ..plain_node().capacity };
    world.join(0, &Node { capacity: cramped, ..plain_node() });
    let mut whole = ServiceSpec { replicas: 2, priority: 10, ..ServiceSpec::default() };
    whole.placement.batching = Batching::AllOrNothing;
    world.apply("shop", &web(whole));
    world.decide();
    assert_eq!(reason(&world, "shop"), Some(Reason::BatchIncomplete));
    world.apply("blog", &web(with_volume("data")));
    world.decide();
    assert_eq!(reason(&world, "shop"), Some(Reason::IpamExhausted));
    assert_eq!(world.plan().groups, []);
}

#[test]
fn a_drain_is_done_with_the_plan_that_gives_up_the_last_replica() {
    let mut world = cluster(1);
    let mut spec = ServiceSpec::default();
    spec.restart.max_attempts = Some(0);
    world.apply("shop", &web(spec));
    world.decide();
    intend(&mut world, 0, Intent::Draining);
    world.act(&Step::Observe(0, ReplicaState::Degraded, Target::Current));
    world.decide();
    let again = world.plan();
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn a_completed_job_that_becomes_a_waiting_service_reserves_nothing() {
    let mut world = World::default();
    let capacity = Capacity { disk_bytes: Some(4 * GIB), ..plain_node().capacity };
    world.join(0, &Node { capacity, ..plain_node() });
    world.apply("blog", &web(ServiceSpec { kind: ServiceKind::Batch, ..ServiceSpec::default() }));
    world.decide();
    let mut spec = ServiceSpec { priority: 90, ..ServiceSpec::default() };
    let zone = Attribute::Label("zone".to_owned());
    spec.placement.distinct_property = vec![DistinctProperty { attribute: zone, limit: 1 }];
    world.apply("blog", &web(spec));
    world.act(&Step::Observe(0, ReplicaState::Completed, Target::Current));
    world.decide();
    world.apply("shop", &web(ServiceSpec::default()));
    world.act(&Step::UseDegraded(0));
    let plan = world.plan();
    assert_eq!(plan, world.plan());
    assert_eq!(plan.placements(), 1);
}

#[test]
fn explaining_a_completed_job_reserves_nothing() {
    let mut world = World::default();
    let capacity = Capacity { disk_bytes: Some(4 * GIB), ..plain_node().capacity };
    world.join(0, &Node { capacity, ..plain_node() });
    world.apply("blog", &web(ServiceSpec { kind: ServiceKind::Batch, ..ServiceSpec::default() }));
    world.decide();
    world.act(&Step::Observe(0, ReplicaState::Completed, Target::Current));
    let slot = slots(&world, "blog")[0].key.clone();
    assert!(explain_placed(&mut world.view, &group_key("blog", "web"), &slot, world.now).is_some());
    world.apply("shop", &web(ServiceSpec::default()));
    assert_eq!(world.plan().placements(), 1);
}

#[test]
fn a_rollout_ends_with_the_plan_that_gives_up_its_last_slot() {
    let mut world = cluster(1);
    let limits = |max_attempts| {
        let mut spec = ServiceSpec { replicas: 3, ..ServiceSpec::default() };
        spec.placement.max_replicas_per_node = Some(1);
        spec.restart.max_attempts = max_attempts;
        spec.driver = if max_attempts.is_some() { Driver::Exec } else { Driver::Docker };
        spec
    };
    world.apply("shop", &web(limits(None)));
    world.decide();
    world.apply("shop", &web(limits(Some(0))));
    world.act(&Step::Observe(0, ReplicaState::Degraded, Target::Current));
    let (plan, _) = world.decide();
    let gives_up = |item: &PlanItem| matches!(item, PlanItem::GiveUp { .. });
    assert!(plan.groups.iter().flat_map(|group| &group.items).any(gives_up));
    assert_eq!(plan.deployments.len(), 1, "and the rollout ends");
    assert!(world.plan().is_empty());
}

#[test]
fn scaling_during_a_rollout_keeps_updated_slots() {
    let mut world = cluster(1);
    let other_pool = PoolName::from("batch");
    world.join(1, &Node { pool: other_pool, ..plain_node() });
    world.apply("blog", &web(ServiceSpec { replicas: 0, ..ServiceSpec::default() }));
    let mut spec = ServiceSpec { replicas: 2, spec_hash: SpecHash("changed".into()), ..ServiceSpec::default() };
    spec.placement.pool = PoolSelector::All;
    spec.placement.constraints =
        vec![Constraint { attribute: Attribute::Hostname, operator: Operator::Equal, value: "n1".to_owned() }];
    world.apply("blog", &web(spec));
    world.decide();
    world.act(&Step::Scale(0, 2, 1));
    world.act(&Step::Settle);
    let (plan, _) = world.decide();
    assert_eq!(plan.placements(), 0, "{plan:?}");
    assert!(world.plan().is_empty());
}

#[test]
fn waiting_reasons_are_updated_when_a_node_is_removed() {
    let mut world = World::default();
    world.join(0, &plain_node());
    let cramped = Capacity { memory_bytes: 1000 * MIB, ..plain_node().capacity };
    world.join(1, &Node { capacity: cramped, ..plain_node() });
    let mut spec = ServiceSpec { replicas: 2, ..large() };
    spec.placement.max_replicas_per_node = Some(1);
    world.apply("shop", &web(spec));
    world.decide();
    let waits = |world: &World| slots(world, "shop")[1].waiting;
    assert_eq!(waits(&world), Some(Reason::NoCapacityMemory));
    intend(&mut world, 1, Intent::Removed);
    world.decide();
    assert_eq!(waits(&world), Some(Reason::MaxReplicasPerNode));
}

#[test]
fn waiting_reasons_include_what_the_same_plan_reserves() {
    let mut world = cluster(1);
    let mut first = ServiceSpec { priority: 90, ..large() };
    first.resources.devices.insert("gpu".to_owned(), 1);
    world.apply("blog", &web(first));
    world.apply("shop", &web(large()));
    world.decide();
    assert_eq!(reason(&world, "blog"), Some(Reason::NoCapacityMemory));
    assert!(world.plan().is_empty());
}

#[test]
fn a_new_leader_continues_generation_numbers_of_an_empty_slot() {
    let mut world = cluster(1);
    world.apply("shop", &web(ServiceSpec::default()));
    world.decide();
    world.act(&Step::Settle);
    world.apply("shop", &web(changed(ServiceSpec::default())));
    world.decide();
    world.act(&Step::Settle);
    let mut rebuilt = world.rebuilt();
    let plan = plan(&mut rebuilt, world.state.index(), world.now);
    world.run(Command::Commit(Box::new(plan)));
    assert_eq!(slots(&world, "shop")[0].replicas.len(), 1);
}

#[test]
fn a_new_leader_assigns_no_address_that_is_in_use_again() {
    let mut world = cluster(1);
    world.apply("blog", &web(ServiceSpec::default()));
    world.decide();
    world.act(&Step::Remove(0));
    world.decide();
    world.act(&Step::Settle);
    world.now = world.now.after(Duration::from_hours(1));
    world.apply("shop", &web(ServiceSpec::default()));
    world.decide();
    world.apply("wiki", &web(ServiceSpec::default()));
    let mut rebuilt = world.rebuilt();
    let plan = plan(&mut rebuilt, world.state.index(), world.now);
    let events = world.run(Command::Commit(Box::new(plan)));
    limits::check(&world.state, &ReferenceUsage::of(&world.state, world.now), &events);
}

#[test]
fn an_update_waits_while_its_paused_node_could_not_start_it() {
    for spec in [global(), with_volume("data")] {
        let mut world = cluster(1);
        world.apply("shop", &web(spec.clone()));
        world.decide();
        world.act(&Step::Settle);
        intend(&mut world, 0, Intent::Paused);
        world.apply("shop", &web(changed(spec)));
        assert!(world.decide().0.is_empty());
        intend(&mut world, 0, Intent::Active);
        assert!(!world.decide().0.is_empty());
    }
}

#[test]
fn a_slot_being_updated_keeps_its_node() {
    let mut world = cluster(1);
    let mut spec = ServiceSpec { replicas: 1, ..ServiceSpec::default() };
    spec.placement.max_replicas_per_node = Some(1);
    world.apply("shop", &web(spec.clone()));
    world.decide();
    world.act(&Step::Settle);
    world.apply("shop", &web(changed(ServiceSpec { replicas: 2, ..spec })));
    world.decide();
    assert_eq!(world.decide().0.placements(), 0);
    world.act(&Step::Settle);
    let (plan, _) = world.decide();
    let first = placements(&plan, &group_key("shop", "web")).into_keys().next();
    assert_eq!(first, slots(&world, "shop").first().map(|slot| slot.key.clone()));
}

#[test]
fn the_order_of_groups_does_not_depend_on_recent_changes_of_a_companion() {
    let mut near = ServiceSpec { priority: 90, ..large() };
    near.placement.near = vec![Companion { service: "web".into(), strength: Strength::Hard }];
    let low = ServiceSpec { priority: 10, ..global() };
    let mut world = cluster(1);
    world.apply("shop", &vec![(0, Terse(Arc::new(near))), (2, Terse(Arc::new(low)))]);
    intend(&mut world, 0, Intent::Paused);
    world.apply("wiki", &web(large()));
    let order = |world: &mut World| world.plan().groups.into_iter().map(|group| group.group).collect::<Vec<_>>();
    assert_eq!(order(&mut world), order(&mut world));
}

/// A cluster of one node with preemption on.
fn with_preemption() -> World {
    let mut world = cluster(1);
    let preemption = Preemption::On;
    world.act(&Step::Configure { default_memory_bytes: 0, cpu_overcommit_millionths: 1_000_000, preemption });
    world
}

#[test]
fn no_replica_is_displaced_twice() {
    let mut world = with_preemption();
    world.apply("blog", &web(ServiceSpec { priority: 10, ..large() }));
    world.decide();
    world.apply("shop", &web(ServiceSpec { priority: 90, replicas: 5, ..large() }));
    let (plan, _) = world.decide();
    let stops = plan.groups.iter().flat_map(|group| &group.items).filter(|item| matches!(item, PlanItem::Stop(_)));
    assert_eq!(stops.count(), 1);
}

#[test]
fn a_service_with_too_few_pinned_hosts_displaces_nothing() {
    let mut world = with_preemption();
    world.apply("blog", &web(ServiceSpec { priority: 10, ..large() }));
    world.decide();
    let mut pinned = ServiceSpec { priority: 90, replicas: 2, ..large() };
    (pinned.placement.strategy, pinned.placement.hosts) = (Strategy::Hosts, [node_name(0)].into());
    world.apply("shop", &web(pinned));
    let (plan, _) = world.decide();
    assert!(plan.groups.iter().all(|group| group.group == group_key("shop", "web")));
}

#[test]
fn an_away_from_service_is_placed_by_the_plan_that_scales_the_other_to_zero() {
    let mut world = cluster(1);
    world.apply("shop", &web(ServiceSpec::default()));
    world.decide();
    let mut shy = ServiceSpec::default();
    shy.placement.away_from = vec![Companion { service: "web".into(), strength: Strength::Hard }];
    let none = ServiceSpec { replicas: 0, ..ServiceSpec::default() };
    world.apply("shop", &vec![(0, Terse(Arc::new(shy))), (2, Terse(Arc::new(none)))]);
    assert_eq!(world.decide().0.placements(), 1);
    assert!(world.plan().is_empty());
}

#[test]
fn a_completed_job_that_becomes_a_service_as_its_node_is_removed_keeps_its_slot() {
    let mut world = cluster(1);
    let mut service = ServiceSpec::default();
    service.placement.pool = PoolSelector::All;
    service.update.parallelism = Some(0);
    let job = ServiceSpec { kind: ServiceKind::Batch, ..service.clone() };
    world.apply("blog", &web(job));
    world.act(&Step::Decide);
    world.act(&Step::Observe(0, ReplicaState::Completed, Target::Current));
    world.apply("blog", &web(service));
    intend(&mut world, 0, Intent::Removed);
    world.act(&Step::Decide);
    assert_eq!(
        slots(&world, "blog").iter().map(|slot| slot.key.clone()).collect::<Vec<_>>(),
        [SlotKey::Index(SlotIndex(0))]
    );
    assert_eq!(reason(&world, "blog"), Some(Reason::NoNodesActive));
    assert!(world.plan().is_empty());
}

#[test]
fn a_global_replica_is_updated_on_its_own_node_only() {
    let mut world = cluster(2);
    let mut filler = large();
    filler.placement.constraints =
        vec![Constraint { attribute: Attribute::Hostname, operator: Operator::Equal, value: "n0".to_owned() }];
    world.apply("blog", &web(filler));
    world.apply("shop", &web(global()));
    world.decide();
    world.act(&Step::Settle);
    let mut larger = ServiceSpec { spec_hash: SpecHash("changed".into()), ..global() };
    larger.resources.memory_limit_bytes = Some(2000 * MIB);
    for order in [UpdateOrder::StartFirst, UpdateOrder::StopFirst] {
        larger.update.order = Some(order);
        world.apply("shop", &web(larger.clone()));
        let (plan, _) = world.decide();
        let at_home = |(slot, node): (SlotKey, NodeName)| slot == SlotKey::Node(node);
        assert!(placements(&plan, &group_key("shop", "web")).into_iter().all(at_home), "{plan:#?}");
        let kept = slots(&world, "shop").into_iter().next().expect("n0 has one");
        assert!(kept.replicas.iter().all(|replica| replica.desired == DesiredState::Run), "{kept:#?}");
    }
}

#[test]
fn a_job_with_a_new_spec_runs_again_although_its_last_node_is_removed() {
    let mut world = cluster(2);
    let job = ServiceSpec { kind: ServiceKind::Batch, ..ServiceSpec::default() };
    world.apply("shop", &web(job.clone()));
    world.decide();
    world.act(&Step::Observe(0, ReplicaState::Completed, Target::Current));
    world.apply("shop", &web(ServiceSpec { spec_hash: SpecHash("changed".into()), ..job }));
    intend(&mut world, 0, Intent::Removed);
    let (plan, _) = world.decide();
    assert_eq!(placements(&plan, &group_key("shop", "web")), [(SlotKey::Index(SlotIndex(0)), node_name(1))].into());
}

#[test]
fn scaling_down_closes_waiting_slots_before_starting_ones() {
    let mut world = cluster(1);
    let mut spec = ServiceSpec { replicas: 3, ..ServiceSpec::default() };
    spec.placement.max_replicas_per_node = Some(1);
    world.apply("shop", &web(spec));
    world.decide();
    world.act(&Step::Scale(1, 2, 1));
    let (plan, _) = world.decide();
    assert_eq!(plan.placements(), 0, "{plan:#?}");
    let left: Vec<_> = slots(&world, "shop").iter().map(|slot| (slot.key.clone(), slot.replicas.len())).collect();
    assert_eq!(left, [(SlotKey::Index(SlotIndex(0)), 1)]);
}

#[test]
fn a_replica_that_ended_is_not_restarted_on_a_node_that_is_down() {
    let mut world = cluster(1);
    let mut spec = ServiceSpec::default();
    spec.restart.condition = RestartCondition::OnFailure;
    world.apply("shop", &web(spec));
    world.decide();
    world.act(&Step::Observe(0, ReplicaState::Completed, Target::Current));
    world.join(1, &Node { drivers: [Driver::Exec].into(), ..plain_node() });
    fail(&mut world, 0);
    world.apply("shop", &web(ServiceSpec::default()));
    let (plan, _) = world.decide();
    assert!(plan.groups.is_empty(), "{plan:#?}");
    world.act(&Step::Health(0, Health::Ready));
    let (plan, _) = world.decide();
    let restarts = |item: &PlanItem| matches!(item, PlanItem::Restart { .. });
    assert!(plan.groups.iter().flat_map(|group| &group.items).any(restarts), "{plan:#?}");
}
