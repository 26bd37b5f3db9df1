//! What the properties once found, as stories.

use std::sync::Arc;

use longshore_model::{ReplicaState, ServiceKind, ServiceSpec, service::SpecHash, units::MIB};

use super::{
    histories::{Aim, Manifest, Step},
    ledger::Ledger,
    limits,
    shapes::{Terse, node_name, plain_node},
    world::World,
};

/// A service that takes most of a plain node's 4 GiB.
fn large() -> ServiceSpec {
    let mut spec = ServiceSpec::default();
    spec.resources.memory_limit_bytes = Some(3000 * MIB);
    spec
}

/// A manifest whose only service is `web`.
fn web(spec: ServiceSpec) -> Manifest {
    vec![(2, Terse(Arc::new(spec)))]
}

/// The same service, made from another image.
fn changed(spec: ServiceSpec) -> ServiceSpec {
    ServiceSpec { spec_hash: SpecHash("changed".into()), ..spec }
}

/// A cluster of so many plain nodes, n0 first.
fn cluster(nodes: u8) -> World {
    let mut world = World::default();
    for name in 0..nodes {
        world.join(name, &plain_node());
    }
    world
}

#[test]
fn a_completed_job_that_is_scaled_away_gives_its_memory_back_once() {
    let mut world = cluster(1);
    world.apply("shop", &web(ServiceSpec { kind: ServiceKind::Batch, ..large() }));
    world.decide();
    world.act(&Step::See(0, ReplicaState::Completed, Aim::True));
    world.apply("wiki", &web(large()));
    world.decide();
    world.act(&Step::Remove(1));
    world.act(&Step::Decide);
    world.act(&Step::Settle);
    world.apply("blog", &web(large()));
    let (_, events) = world.decide();
    limits::check(&world.state, &Ledger::of(&world.state, world.now), &events);
    let reason = world.state.groups().find_map(|(key, group)| {
        let waits = group.slots.values().find_map(|slot| slot.waiting);
        (key.deployment.as_str() == "blog").then_some(waits)
    });
    assert_eq!(reason, Some(Some(longshore_model::Reason::NoCapacityMemory)));
}

#[test]
fn a_job_that_becomes_a_service_does_not_start_again_in_memory_it_gave_back() {
    let mut world = cluster(1);
    let job = ServiceSpec { kind: ServiceKind::Batch, ..large() };
    world.apply("shop", &web(job.clone()));
    world.decide();
    world.act(&Step::See(0, ReplicaState::Completed, Aim::True));
    world.apply("wiki", &web(large()));
    world.decide();
    world.apply("shop", &web(changed(ServiceSpec { kind: ServiceKind::Service, ..job })));
    let (_, events) = world.decide();
    limits::check(&world.state, &Ledger::of(&world.state, world.now), &events);
    assert!(Ledger::of(&world.state, world.now).on(&node_name(0)).memory_bytes <= 4096 * MIB);
}
