//! Regressions with `depends_on`.

use std::sync::Arc;

use longshore_model::{
    Driver, Reason, ReplicaState, ServiceSpec,
    service::{Dependency, DependencyCondition},
};

use super::{Step, Target, Terse, cluster, reason};

#[test]
fn dependents_wait_in_the_same_plan_that_restarts_the_dependency() {
    let mut world = cluster(1);
    let after = Dependency { condition: DependencyCondition::ServiceStarted, restart: false, required: true };
    let depends_on = [("db".into(), after)].into();
    let web = ServiceSpec { driver: Driver::Exec, depends_on, ..ServiceSpec::default() };
    world.apply("shop", &vec![(0, Terse(Arc::new(ServiceSpec::default()))), (2, Terse(Arc::new(web)))]);
    world.decide();
    world.act(&Step::Observe(0, ReplicaState::Degraded, Target::Current));
    world.decide();
    assert_eq!(reason(&world, "shop"), Some(Reason::DependencyNotReady));
    let again = world.plan();
    assert!(again.is_empty(), "{again:#?}");
}
