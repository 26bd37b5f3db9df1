//! Regressions with `max_concurrent`.

use longshore_model::{Capacity, Node, ServiceKind, ServiceSpec};

use super::{World, fail, global, group_key, node_name, placements, plain_node, web};

#[test]
fn a_lost_node_frees_its_max_concurrent_share_for_the_next_node() {
    let mut world = World::default();
    let full = Capacity { disk_bytes: Some(0), ..plain_node().capacity };
    world.join(0, &Node { capacity: full, ..plain_node() });
    world.join(1, &plain_node());
    let job = ServiceSpec { kind: ServiceKind::Sysbatch, max_concurrent: Some(1), ..global() };
    world.apply("shop", &web(job));
    world.decide();
    fail(&mut world, 0);
    let (plan, _) = world.decide();
    assert_eq!(placements(&plan, &group_key("shop", "web")).into_values().collect::<Vec<_>>(), [node_name(1)]);
    let again = world.plan();
    assert!(again.is_empty(), "{again:#?}");
}
