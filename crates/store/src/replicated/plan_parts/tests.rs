//! Plans of all sizes, split and reassembled.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc};

use longshore_model::{
    Evacuation, Generation, GroupKey, NodePlan, Placement, PlanItem, Reason, Reservation, SlotIndex, SlotKey,
    StateIndex, Time, VolumeKey, replica::Details,
};
use proptest::prelude::*;

use super::*;
use crate::replicated::encoding;

fn place(index: u32, volumes: usize) -> PlanItem {
    let volume = |number| VolumeKey { namespace: "default".into(), name: format!("volume-{number}").as_str().into() };
    PlanItem::Place(Placement {
        key: SlotKey::Index(SlotIndex(index)).generation(Generation(1)),
        node: format!("node-{index}").as_str().into(),
        address: Ipv6Addr::from(u128::from(index)),
        new_volumes: (0..volumes).map(volume).collect(),
        devices: longshore_model::device::TakenDevices::default(),
        reservation: None,
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
        reservation: Arc::new(Reservation { memory_bytes: number as u64, ..Reservation::default() }),
        items: items.iter().zip(0..).map(|(volumes, index)| place(index, *volumes)).collect(),
    };
    Plan {
        made_from: StateIndex(7),
        made_at: Time(9),
        groups: groups.iter().enumerate().map(group).collect(),
        ..Plan::default()
    }
}

fn sized(plan: Plan, room: usize) -> Vec<(usize, Plan)> {
    split(plan, room).unwrap().into_iter().map(|part| (encoding::encode(&part).unwrap().len(), part)).collect()
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
    fn the_parts_contain_everything_once_in_order_and_fit(
        groups in prop::collection::vec(prop::collection::vec(0_usize..5, 1..20), 1..8),
        room in 900_usize..4_000,
    ) {
        let whole = plan(&groups);
        let parts = sized(whole.clone(), room);
        prop_assert_eq!(items(parts.iter().map(|(_, part)| part)), items(std::iter::once(&whole)));
        for (size, plan) in &parts {
            let count: usize = plan.groups.iter().map(|group| group.items.len()).sum();
            prop_assert!(*size <= room || count == 1, "{size} bytes, {count} items");
            prop_assert_eq!((plan.made_from, plan.made_at), (whole.made_from, whole.made_at));
        }
    }
}

#[test]
fn changes_of_nodes_and_rollouts_are_in_the_last_part_only() {
    let node = NodePlan::Evacuation(Evacuation::Free);
    let whole = Plan { nodes: vec![node.clone()], ..plan(&[vec![1; 30], vec![1; 30]]) };
    let parts = sized(whole, 1_000);
    assert!(parts.len() > 2, "{} parts", parts.len());
    let (last, before) = parts.split_last().unwrap();
    assert_eq!(last.1.nodes, [node]);
    assert!(before.iter().all(|(_, part)| part.nodes.is_empty()));
}

#[test]
fn a_million_slots_waiting_for_one_reason_are_split() {
    let slots: Vec<_> = (0..1_000_000).map(|index| SlotKey::Index(SlotIndex(index))).collect();
    let mut whole = plan(&[vec![]]);
    let wait = Wait { slots: slots.clone(), reason: Reason::NoCapacityMemory, details: Details::new() };
    whole.groups[0].items = vec![PlanItem::Wait(wait)];
    let room = 512 * 1024;
    let parts = sized(whole, room);
    assert!(parts.iter().all(|(size, _)| *size <= room));
    let items = parts.iter().flat_map(|(_, part)| &part.groups).flat_map(|group| &group.items);
    let waiting = items.flat_map(|item| match item {
        PlanItem::Wait(wait) => wait.slots.clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(waiting.collect::<Vec<_>>(), slots);
}
