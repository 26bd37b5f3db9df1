//! The order of independent commands does not change the plan.

use proptest::{collection::btree_map, prelude::*};

use super::{
    histories::{Step, step},
    random_nodes::{NODES, Terse, node},
    random_services::{DEPLOYMENTS, SECRETS, SERVICES, service},
    world::{World, without_addresses},
};
use crate::proptest_config::cases;

/// Independent steps in two orders.
fn two_orders() -> impl Strategy<Value = (Vec<Step>, Vec<Step>)> {
    let nodes = btree_map(0..NODES, node(), 1..8);
    let services = || btree_map(0..SERVICES.len(), service().prop_map(Terse), 1..3);
    let manifests = btree_map(0..DEPLOYMENTS.len(), services(), 1..4);
    let secrets = btree_map(0..SECRETS.len(), 1_u64..3, 0..3);
    (nodes, manifests, secrets).prop_flat_map(|(nodes, manifests, secrets)| {
        let joins = nodes.into_iter().map(|(name, node)| Step::Join(name, Terse(Box::new(node))));
        let applies = manifests.into_iter().map(|(name, services)| Step::Apply(name, services.into_iter().collect()));
        let secrets = secrets.into_iter().map(|(name, version)| Step::Secret(name, version));
        let steps: Vec<Step> = joins.chain(applies).chain(secrets).collect();
        (Just(steps.clone()), Just(steps).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn independent_commands_in_another_order_give_the_same_plan(
        (first, second) in two_orders(),
        later in proptest::collection::vec(step(), 0..30),
    ) {
        let (mut one, mut other) = (World::after(&first), World::after(&second));
        prop_assert_eq!(without_addresses(one.plan()), without_addresses(other.plan()));
        for step in &later {
            one.act(step);
            other.act(step);
            prop_assert_eq!(without_addresses(one.plan()), without_addresses(other.plan()));
        }
        prop_assert_eq!(one.explain_all(), other.explain_all());
    }
}
