//! Random combinations of companions, distinct rules and racks: every placement respects the rules, and a slot waits
//! only if no node fits.

use std::collections::BTreeMap;

use longshore_model::{
    Attribute, Command, Intent, PlacementSpec, Strategy as Placing,
    service::{Companion, DistinctProperty, Strength},
};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::proptest_config::cases;

const SERVICES: &[&str] = &["api", "db", "web"];
const RACKS: &[&str] = &["r1", "r2", ""];

/// What happens to the cluster.
#[derive(Clone, Debug)]
enum Step {
    Scale(usize, u32),
    Join(usize),
    SetIntent(usize, Intent),
    Stop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let intent = select(vec![Intent::Active, Intent::Paused]);
    let step = prop_oneof![
        4 => (0..SERVICES.len(), 0_u32..6).prop_map(|(service, count)| Step::Scale(service, count)),
        1 => (0..RACKS.len()).prop_map(Step::Join),
        2 => (0_usize..4, intent).prop_map(|(node, intent)| Step::SetIntent(node, intent)),
        2 => Just(Step::Stop),
    ];
    vec(step, 1..12)
}

fn companions() -> impl Strategy<Value = Vec<Companion>> {
    let strength = select(vec![Strength::Hard, Strength::Hard, Strength::Preferred(30)]);
    let companion =
        (select(SERVICES), strength).prop_map(|(service, strength)| Companion { service: service.into(), strength });
    vec(companion, 0..2)
}

fn placement() -> impl Strategy<Value = PlacementSpec> {
    let placing = select(vec![Placing::Spread, Placing::Spread, Placing::LeastLoaded, Placing::Binpack, Placing::Hash]);
    let hosts = select(vec![false, false, true]);
    let limit = option::weighted(0.4, 1_u32..3);
    let levels = select(vec![Vec::new(), vec![Attribute::Label("rack".to_owned())]]);
    (placing, hosts, limit, companions(), companions(), levels).prop_map(
        |(strategy, distinct_hosts, limit, near, away_from, preferences)| PlacementSpec {
            strategy,
            distinct_hosts,
            near,
            away_from,
            preferences,
            distinct_property: limit
                .map(|limit| DistinctProperty { attribute: Attribute::Label("rack".to_owned()), limit })
                .into_iter()
                .collect(),
            ..PlacementSpec::default()
        },
    )
}

impl World {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Scale(service, count) => self.scale(SERVICES[*service], *count),
            Step::Join(rack) => self.join(&format!("n{}", self.state.nodes().count()), RACKS[*rack]),
            Step::SetIntent(node, intent) => {
                let node = format!("n{node}").as_str().into();
                self.run(Command::SetIntent { node, intent: *intent, at: longshore_model::Time::default() });
            }
            Step::Stop => self.finish_stopping(),
        }
    }

    fn locations(&self) -> BTreeMap<&'static str, Vec<String>> {
        SERVICES.iter().map(|service| (*service, self.nodes_of(service))).collect()
    }

    fn rack_of(&self, node: &str) -> Option<String> {
        self.state.node(&node.into())?.labels.get("rack").cloned()
    }

    /// Asserts the distinct rules of a service.
    fn check_distinct(&self, service: &str, placement: &PlacementSpec) {
        let nodes = self.nodes_of(service);
        if placement.distinct_hosts {
            assert!(nodes.windows(2).all(|pair| pair[0] != pair[1]), "{service} twice on a host: {nodes:?}");
        }
        for property in &placement.distinct_property {
            let mut racks: BTreeMap<Option<String>, u32> = BTreeMap::new();
            for node in &nodes {
                *racks.entry(self.rack_of(node)).or_default() += 1;
            }
            assert!(!racks.contains_key(&None), "{service} on a node without rack: {nodes:?}");
            assert!(racks.values().all(|count| *count <= property.limit), "{service} crowds a rack: {racks:?}");
        }
    }

    /// Plans on a rebuilt view, which evaluates every group; if that plan is not empty, the incremental view missed a
    /// wake-up.
    fn check_nothing_was_missed(&self) {
        let mut fresh = View::new();
        for event in self.state.events() {
            fresh.apply(&event);
        }
        let more = plan(&mut fresh, self.state.index(), Time(1000));
        assert!(more.is_empty(), "left undone: {more:#?}");
    }
}

/// Asserts the hard companion rules of replicas placed in a step, against the placements before or after it.
fn check_companions(
    service: &str,
    placement: &PlacementSpec,
    before: &BTreeMap<&'static str, Vec<String>>,
    after: &BTreeMap<&'static str, Vec<String>>,
) {
    let count = |nodes: &[String], node: &String| nodes.iter().filter(|other| *other == node).count();
    let gained = after[service].iter().filter(|node| count(&after[service], node) > count(&before[service], node));
    for node in gained {
        for rule in placement.near.iter().filter(|rule| rule.strength == Strength::Hard) {
            let other = rule.service.as_str();
            let present = before[other].contains(node) || after[other].contains(node);
            assert!(other == service || present, "{service} was placed on {node} without {other}");
        }
        for rule in placement.away_from.iter().filter(|rule| rule.strength == Strength::Hard) {
            let other = rule.service.as_str();
            let present = before[other].contains(node) && after[other].contains(node);
            assert!(other == service || !present, "{service} was placed on {node} beside {other}");
        }
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn placements_respect_the_rules_and_slots_wait_only_if_no_node_fits(
        placements in [placement(), placement(), placement()],
        counts in [0_u32..5, 0_u32..5, 0_u32..5],
        steps in steps(),
    ) {
        let mut world = World::with_racks(&[("n0", "r1"), ("n1", "r1"), ("n2", "r2"), ("n3", "")]);
        let services: Vec<_> = (0..SERVICES.len()).map(|at| (SERVICES[at], counts[at], placements[at].clone())).collect();
        world.apply(&services);
        world.check_nothing_was_missed();
        for step in &steps {
            let before = world.locations();
            world.take(step);
            let after = world.locations();
            for (service, _, placement) in &services {
                world.check_distinct(service, placement);
                check_companions(service, placement, &before, &after);
                let group = world.state.group(&key(service)).expect("it was applied");
                let wanted = usize::try_from(group.spec.replicas).expect("few");
                prop_assert_eq!(after[service].len() < wanted, !world.waiting(service).is_empty());
            }
            world.check_nothing_was_missed();
        }
    }
}
