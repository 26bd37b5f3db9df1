//! Regressions with a namespace quota.

use longshore_model::{
    Command, NamespaceName, PoolName, Reason, ServiceKind, ServiceSpec,
    command::Quota,
    service::{PoolSelector, SpecHash},
    units::MIB,
};

use super::{Step, World, cluster, group_key, placements, reason, slots, web};

/// Sets the quota of the default namespace.
fn limit(world: &mut World, quota: Quota) {
    world.run(Command::SetQuota { namespace: NamespaceName::default_namespace(), quota });
}

/// At most one replica.
const ONE: Quota = Quota { replicas: Some(1), memory_bytes: None, cpu_millis: None };

#[test]
fn slots_blocked_by_a_quota_and_slots_without_a_node_are_all_opened() {
    let mut world = World::default();
    limit(&mut world, ONE);
    world.apply("shop", &web(ServiceSpec { replicas: 3, ..ServiceSpec::default() }));
    world.decide();
    let reasons: Vec<_> = slots(&world, "shop").iter().map(|slot| slot.waiting).collect();
    let (room, quota) = (Some(Reason::NoNodesActive), Some(Reason::QuotaExceeded));
    assert_eq!(reasons, [room, quota, quota]);
}

#[test]
fn slots_waiting_for_a_quota_are_retried_when_others_stop() {
    let mut world = cluster(1);
    limit(&mut world, ONE);
    world.apply("blog", &web(ServiceSpec::default()));
    world.decide();
    world.apply("shop", &web(ServiceSpec::default()));
    world.decide();
    assert_eq!(reason(&world, "shop"), Some(Reason::QuotaExceeded));
    world.act(&Step::Remove(0));
    assert_eq!(world.decide().0.placements(), 1);
}

#[test]
fn follow_up_decisions_are_part_of_the_plan_in_a_stable_order() {
    let mut world = cluster(1);
    let memory = |mib: u64, priority: u8| {
        let mut spec = ServiceSpec { priority, ..ServiceSpec::default() };
        spec.resources.memory_limit_bytes = Some(mib * MIB);
        spec
    };
    limit(&mut world, Quota { memory_bytes: Some(100 * MIB), ..Quota::default() });
    world.apply("wiki", &web(memory(0, 50)));
    world.apply("blog", &web(memory(80, 50)));
    world.apply("shop", &web(memory(90, 60)));
    world.decide();
    world.apply("wiki", &web(ServiceSpec { spec_hash: SpecHash("changed".into()), ..memory(64, 50) }));
    let plan = world.plan();
    assert_eq!(plan, world.plan());
    world.run(Command::Commit(Box::new(plan)));
    assert_eq!(world.plan().groups, []);
}

#[test]
fn freed_quota_goes_to_the_highest_priority() {
    let mut world = cluster(1);
    limit(&mut world, ONE);
    let of_priority = |priority: u8| ServiceSpec { priority, ..ServiceSpec::default() };
    world.apply("wiki", &web(of_priority(90)));
    world.decide();
    world.apply("blog", &web(of_priority(10)));
    world.apply("shop", &web(of_priority(50)));
    let mut job = ServiceSpec { kind: ServiceKind::Batch, ..of_priority(40) };
    job.placement.pool = PoolSelector::Named(PoolName::from("batch"));
    world.apply("wiki", &web(job));
    let (plan, _) = world.decide();
    assert_eq!(plan.placements(), 1, "{plan:#?}");
    assert_eq!(placements(&plan, &group_key("shop", "web")).len(), 1);
    assert_eq!(reason(&world, "blog"), Some(Reason::QuotaExceeded));
    let again = world.plan();
    assert!(again.is_empty(), "{again:#?}");
}
