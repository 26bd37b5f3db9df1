//! Properties under random load: hours of random samples, moves applied, and the limits checked after every cycle.

use std::collections::BTreeMap;

use longshore_model::{PlanItem, ServiceSpec, SlotKey, Time, service::ServiceKind};
use proptest::prelude::*;

use super::{MINUTE, World, service};
use crate::proptest_config::cases;

const NODES: [&str; 4] = ["a", "b", "c", "d"];

/// Node loads over time, each with the number of cycles it lasts.
fn loads() -> impl Strategy<Value = Vec<([i64; 4], u32)>> {
    proptest::collection::vec((proptest::array::uniform4(0_i64..=1_000_000), 1_u32..30), 1..20)
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn moves_respect_cooldowns_and_the_limit_of_one_per_cycle(
        loads in loads(),
        homes in proptest::array::uniform6(0_usize..4),
        sizes in proptest::array::uniform6(100_u64..2000),
    ) {
        let mut world = World::new(&NODES);
        for (number, (home, size)) in homes.into_iter().zip(sizes).enumerate() {
            world.run(&format!("s{number}"), service(size), &[NODES[home]]);
        }
        world.run("daemon", ServiceSpec { kind: ServiceKind::System, ..service(500) }, &["a"]);
        let mut moved: BTreeMap<(String, SlotKey), Time> = BTreeMap::new();
        let mut received: BTreeMap<String, Time> = BTreeMap::new();
        let mut reported = 0;
        for (load, cycles) in loads {
            for _ in 0..cycles {
                let samples: Vec<(&str, i64)> = NODES.into_iter().zip(load).collect();
                let cycle = world.cycle(&samples);
                reported += cycle.skips.iter().filter(|skip| skip.count == 1).count();
                let items: Vec<_> = cycle.plan.groups.iter().flat_map(|part| {
                    part.items.iter().map(|item| (part.group.service.to_string(), item))
                }).collect();
                prop_assert!(items.len() <= 1, "one move per cycle: {:?}", items);
                for (service, item) in items {
                    let PlanItem::Place(placement) = item else { continue };
                    prop_assert_ne!(&service, "daemon");
                    let last = moved.insert((service, placement.key.slot.clone()), world.now);
                    prop_assert!(last.is_none_or(|last| world.now.0 - last.0 >= 10 * MINUTE));
                    let last = received.insert(placement.node.to_string(), world.now);
                    prop_assert!(last.is_none_or(|last| world.now.0 - last.0 >= 2 * MINUTE));
                    let score = placement.moved.as_deref().expect("a move carries its score");
                    prop_assert!(score.dst_after < Some(longshore_model::rebalance::Share(750_000)));
                    prop_assert!(score.src_before >= Some(longshore_model::rebalance::Share(850_000)));
                }
                world.carry_out(&cycle.plan);
            }
        }
        // Six movable replicas, each generation reported at most once per node and reason, plus one `no_candidate` per
        // node.
        let generations = 6 + moved.len() * 60;
        prop_assert!(reported <= generations * 8 + NODES.len());
    }

    #[test]
    fn the_same_samples_give_the_same_moves(loads in loads(), homes in proptest::array::uniform6(0_usize..4)) {
        let play = || {
            let mut world = World::new(&NODES);
            for (number, home) in homes.into_iter().enumerate() {
                world.run(&format!("s{number}"), service(700), &[NODES[home]]);
            }
            let mut cycles = Vec::new();
            for (load, times) in &loads {
                for _ in 0..*times {
                    let samples: Vec<(&str, i64)> = NODES.into_iter().zip(*load).collect();
                    let cycle = world.cycle(&samples);
                    world.carry_out(&cycle.plan);
                    cycles.push(cycle);
                }
            }
            cycles
        };
        prop_assert_eq!(play(), play());
    }

    #[test]
    fn an_evenly_busy_cluster_never_moves_anything(load in 0_i64..=1_000_000, noise in 0_i64..100_000) {
        let mut world = World::new(&NODES);
        for number in 0..6 {
            world.run(&format!("s{number}"), service(1000), &[NODES[number % 4]]);
        }
        for cycle in 0..200_i64 {
            let samples: Vec<(&str, i64)> = (0_i64..).zip(NODES).map(|(at, node)| (node, load + noise * ((cycle + at) % 3) / 2)).collect();
            let cycle = world.cycle(&samples);
            prop_assert!(cycle.plan.is_empty() && cycle.skips.is_empty());
        }
    }
}
