//! Plans of all sizes, cut and put together again.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Evacuation, Generation, GroupKey, NodePlan, Placement, PlanItem, SlotIndex, SlotKey, StateIndex, Terms, Time,
    VolumeKey,
};
use proptest::prelude::*;

use super::*;
use crate::replicated::encoding;

fn place(index: u32, volumes: usize) -> PlanItem {
    let volume = |number| VolumeKey { namespace: "default".into(), name: format!("volume-{number}").as_str().into() };
    PlanItem::Place(Placement {
        slot: SlotKey::Index(SlotIndex(index)),
        generation: Generation(1),
        node: format!("node-{index}").as_str().into(),
        address: Ipv6Addr::from(u128::from(index)),
        new_volumes: (0..volumes).map(volume).collect(),
        devices: longshore_model::device::TakenDevices::default(),
        terms: None,
        moved: None,
    })
}

fn plan(groups: &[Vec<usize>]) -> Plan {
    let group = |(number, items): (usize, &Vec<usize>)| GroupPlan {
        group: GroupKey {
            namespace: "default".into(),
            deployment: "shop".into(),
            service: format!("s{number}").as_str().into(),
        },
        terms: Arc::new(Terms { memory_bytes: number as u64, ..Terms::default() }),
        items: items.iter().zip(0..).map(|(volumes, index)| place(index, *volumes)).collect(),
    };
    Plan {
        made_from: StateIndex(7),
        made_at: Time(9),
        groups: groups.iter().enumerate().map(group).collect(),
        ..Plan::default()
    }
}

fn parts(plan: Plan, room: usize) -> Vec<(usize, Item)> {
    let proposal = Proposal::by_system(Command::Commit(Box::new(plan)), Time(9));
    let parts = cut(proposal, 3, room).unwrap();
    parts.iter().map(|part| (part.0.len(), encoding::decode(&part.0).unwrap())).collect()
}

fn planned(item: &Item) -> &Plan {
    match &item.proposal.command {
        Command::Commit(plan) => plan,
        other => panic!("{other:?}"),
    }
}

/// Items of each group, in order.
fn items<'a>(plans: impl Iterator<Item = &'a Plan>) -> BTreeMap<&'a GroupKey, Vec<&'a PlanItem>> {
    let mut items: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for group in plans.flat_map(|plan| &plan.groups) {
        items.entry(&group.group).or_default().extend(&group.items);
    }
    items
}

proptest! {
    #[test]
    fn the_parts_hold_everything_once_in_order_and_fit(
        groups in prop::collection::vec(prop::collection::vec(0_usize..5, 1..20), 1..8),
        room in 900_usize..4_000,
    ) {
        let whole = plan(&groups);
        let parts = parts(whole.clone(), room);
        prop_assert_eq!(items(parts.iter().map(|(_, item)| planned(item))), items(std::iter::once(&whole)));
        for ((size, item), number) in parts.iter().zip(0..) {
            let plan = planned(item);
            let count: usize = plan.groups.iter().map(|group| group.items.len()).sum();
            // The number of a part is not known when its size is; it takes a few dozen bytes.
            prop_assert!(*size <= room + 64 || count == 1, "{size} bytes, {count} items");
            prop_assert_eq!((plan.made_from, plan.made_at), (whole.made_from, whole.made_at));
            if parts.len() > 1 {
                let all = u32::try_from(parts.len()).unwrap();
                prop_assert_eq!(item.part, Some(PlanPart { plan: 3, part: number, parts: all }));
            }
        }
    }
}

#[test]
fn what_a_plan_says_about_nodes_and_rollouts_is_said_once_and_after_everything_else() {
    let node = NodePlan::Evacuation(Evacuation::Free);
    let whole = Plan { nodes: vec![node.clone()], ..plan(&[vec![1; 30], vec![1; 30]]) };
    let parts = parts(whole, 1_000);
    assert!(parts.len() > 2, "{} parts", parts.len());
    let (last, before) = parts.split_last().unwrap();
    assert_eq!(planned(&last.1).nodes, [node]);
    assert!(before.iter().all(|(_, item)| planned(item).nodes.is_empty()));
}
