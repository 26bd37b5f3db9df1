//! Regressions with rollouts and removals.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longshore_model::{
    Attribute, Constraint, Driver, Node, Operator, Reason, ServiceKind, ServiceSpec,
    rollout::RolloutChange,
    service::{Canary, FailureAction, Promotion, SpecHash},
    settings::Preemption,
};

use super::{Step, World, cluster, fail, group_key, large, node_name, placements, plain_node, reason, web};

#[test]
fn an_aborted_rollout_releases_capacity_of_slots_it_did_not_start() {
    let mut world = cluster(1);
    let mut rolled = ServiceSpec { replicas: 2, ..large() };
    rolled.update.parallelism = Some(0);
    world.apply("blog", &Vec::new());
    world.apply("blog", &web(rolled));
    world.apply("shop", &web(large()));
    world.act(&Step::Decide);
    assert_eq!(reason(&world, "shop"), Some(Reason::NoCapacityMemory));
    world.join(1, &plain_node());
    world.act(&Step::Wait(Duration::from_mins(1)));
    let (plan, _) = world.decide();
    assert_eq!((plan.deployments.len(), plan.placements()), (1, 0), "{plan:#?}");
    let (plan, _) = world.decide();
    assert_eq!(placements(&plan, &group_key("shop", "web")).into_values().collect::<Vec<_>>(), [node_name(1)]);
}

#[test]
fn a_plan_that_is_never_committed_blocks_nothing() {
    let mut world = cluster(1);
    world.apply("blog", &web(large()));
    world.apply("shop", &web(large()));
    world.decide();
    world.join(1, &plain_node());
    world.apply("blog", &web(ServiceSpec { replicas: 2, ..large() }));
    assert_eq!(placements(&world.plan(), &group_key("blog", "web")).len(), 1);
    world.apply("blog", &web(large()));
    assert_eq!(placements(&world.decide().0, &group_key("shop", "web")).len(), 1);
}

#[test]
fn a_canary_that_failed_is_not_promoted_while_its_rollout_is_paused() {
    let mut world = cluster(1);
    let spec = ServiceSpec { replicas: 2, ..ServiceSpec::default() };
    world.apply("shop", &web(spec.clone()));
    world.act(&Step::Decide);
    world.act(&Step::Settle);
    let canary = Canary { count: 1, promotion: Promotion::Automatic };
    let mut tried = ServiceSpec { canary, spec_hash: SpecHash("changed".into()), ..spec };
    tried.update.failure_action = FailureAction::Pause;
    world.act(&Step::Wait(Duration::from_mins(1)));
    world.apply("shop", &web(tried));
    world.act(&Step::Decide);
    world.act(&Step::Wait(Duration::from_mins(1)));
    let (plan, _) = world.decide();
    assert!(matches!(plan.deployments[0].change, RolloutChange::Pause(_)), "{plan:#?}");
    let again = world.plan();
    assert!(again.is_empty(), "{again:#?}");
}

/// A plain node in a zone.
fn in_zone(zone: &str) -> Node {
    Node { labels: BTreeMap::from([("zone".to_owned(), zone.to_owned())]), ..plain_node() }
}

#[test]
fn a_removed_deployment_is_still_explained_by_its_constraint_labels() {
    let mut world = World::default();
    world.join(0, &in_zone("a"));
    let mut spec = ServiceSpec::default();
    spec.placement.constraints = vec![Constraint {
        attribute: Attribute::Label("zone".to_owned()),
        operator: Operator::Equal,
        value: "a".to_owned(),
    }];
    world.apply("shop", &web(spec));
    world.decide();
    world.act(&Step::Remove(1));
    world.join(1, &in_zone("b"));
    world.join(2, &in_zone("b"));
    fail(&mut world, 0);
    let why = world.explain(&group_key("shop", "web"));
    let reasons: Vec<Reason> = why.into_iter().map(|(_, why)| why.reason).collect();
    assert_eq!(reasons, [Reason::ConstraintUnsatisfied]);
}

#[test]
fn a_job_that_becomes_a_service_with_canaries_is_placed_while_the_job_stops() {
    let mut world = World::default();
    world.act(&Step::Configure {
        default_memory_bytes: 0,
        cpu_overcommit_millionths: 1_000_000,
        preemption: Preemption::On,
    });
    let mut exec = plain_node();
    exec.drivers = BTreeSet::from([Driver::Exec]);
    world.join(0, &exec);
    let mut service = ServiceSpec::default();
    service.update.parallelism = Some(0);
    world.apply("blog", &Vec::new());
    world.apply("blog", &web(service.clone()));
    world.join(1, &plain_node());
    world.act(&Step::Decide);
    world.apply("blog", &web(ServiceSpec { kind: ServiceKind::Batch, driver: Driver::Exec, ..service.clone() }));
    world.act(&Step::Decide);
    let canary = Canary { count: 1, promotion: Promotion::Manual };
    world.apply("blog", &web(ServiceSpec { canary, ..service }));
    let (plan, _) = world.decide();
    assert_eq!(placements(&plan, &group_key("blog", "web")).into_values().collect::<Vec<_>>(), [node_name(1)]);
    let again = world.plan();
    assert!(again.is_empty(), "{again:#?}");
}
