//! The register against a walk over everything, over made-up histories.

use std::sync::Arc;

use longshore_model::{
    Attempt, Command, GroupPlan, Placement, PlanItem, ReplicaState, SlotIndex, Terms, VolumeKey,
    command::Observation,
    replica::{Details, HeldVolume, HostPort},
    service::Protocol,
    volume::Sharing,
};
use proptest::prelude::*;

use super::{
    super::{
        recheck as walk,
        tests::{GIB, cluster, group},
    },
    *,
};

const NODES: [&str; 3] = ["a", "b", "c"];
const SERVICES: [&str; 2] = ["web", "db"];

/// One placement as it is drawn: service, slot, node, address, and what it takes.
type Drawn = (usize, u32, usize, u16, u8);

fn placement() -> impl Strategy<Value = Drawn> {
    (0..SERVICES.len(), 0_u32..5, 0..NODES.len(), 0_u16..12, 0_u8..5)
}

fn volume() -> VolumeKey {
    VolumeKey { namespace: longshore_model::NamespaceName::default_namespace(), name: "shop_data".into() }
}

fn terms(takes: u8) -> Terms {
    let held = |sharing| vec![HeldVolume { key: volume(), sharing }];
    match takes {
        0 => Terms { memory_bytes: GIB, ..Terms::default() },
        1 => Terms { host_ports: vec![HostPort { protocol: Protocol::Tcp, port: 80 }], ..Terms::default() },
        2 => Terms { volumes: held(Sharing::Deployment), ..Terms::default() },
        3 => Terms { volumes: held(Sharing::Exclusive), ..Terms::default() },
        _ => Terms { kind: longshore_model::service::ServiceKind::Batch, memory_bytes: GIB / 2, ..Terms::default() },
    }
}

fn plan(state: &State, drawn: &[Drawn], now: u64) -> Plan {
    let part = |&(service, slot, node, address, takes): &Drawn| {
        let (group, slot) = (group(SERVICES[service]), SlotKey::Index(SlotIndex(slot)));
        let newest = state.group(&group).and_then(|group| group.slots.get(&slot)).map_or(0, |slot| slot.newest.0);
        let terms = terms(takes);
        let new_volumes = terms.volumes.iter().map(|held| held.key.clone()).collect();
        let placement = Placement {
            slot,
            generation: Generation(newest + 1),
            node: NODES[node].into(),
            address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, address),
            new_volumes,
            devices: longshore_model::device::TakenDevices::default(),
            terms: None,
            moved: None,
        };
        GroupPlan { group, terms: Arc::new(terms), items: vec![PlanItem::Place(placement)] }
    };
    Plan { made_at: Time(now), groups: drawn.iter().map(part).collect(), ..Plan::default() }
}

/// Something becomes of the `pick`-th replica: it is told to stop and has, or is seen in some state.
fn fate(state: &State, pick: usize, kind: u8, now: u64) -> Vec<Command> {
    let replicas: Vec<_> = state.replicas().collect();
    let Some((group, slot, replica)) = replicas.get(pick % replicas.len().max(1)) else { return Vec::new() };
    let seen = |state| {
        Command::Observe(Observation {
            group: (*group).clone(),
            slot: slot.key.clone(),
            generation: replica.generation,
            attempt: Attempt(0),
            placed_at: None,
            state,
            code: None,
            details: Details::new(),
            at: Time(now),
        })
    };
    match kind {
        0 => vec![seen(ReplicaState::Running)],
        1 => vec![seen(ReplicaState::Completed)],
        2 => vec![seen(ReplicaState::Failed)],
        _ => {
            let stop = PlanItem::Stop { slot: slot.key.clone(), generation: replica.generation };
            let part = GroupPlan { group: (*group).clone(), terms: Arc::default(), items: vec![stop] };
            let plan = Plan { made_at: Time(now), groups: vec![part], ..Plan::default() };
            vec![Command::Commit(Box::new(plan)), seen(ReplicaState::Stopped)]
        }
    }
}

/// Whoever has each address, in an order of their own.
fn addresses(whereabouts: &Whereabouts) -> BTreeMap<Ipv6Addr, BTreeSet<Key>> {
    let having = whereabouts.addresses.iter();
    having.map(|(address, keys)| (*address, keys.iter().cloned().collect())).collect()
}

proptest! {
    #[test]
    fn the_register_says_what_a_walk_over_everything_says(
        steps in prop::collection::vec((prop::collection::vec(placement(), 0..4), 0_usize..9, 0_u8..5), 1..30),
    ) {
        let mut state = cluster(&NODES);
        let mut whereabouts = Whereabouts::of(&state);
        for ((drawn, pick, kind), now) in steps.into_iter().zip((0..).step_by(900_000)) {
            let wanted = plan(&state, &drawn, now);
            let (mut near, mut far) = (wanted.clone(), wanted);
            prop_assert_eq!(whereabouts.recheck(&state, &mut near), walk(&state, &mut far));
            prop_assert_eq!(&near, &far);

            let mut commands = vec![Command::Commit(Box::new(near))];
            commands.extend(fate(&state, pick, kind, now));
            for command in commands {
                whereabouts.follow(&state.apply(command).unwrap());
            }
            let anew = Whereabouts::of(&state);
            prop_assert_eq!(&whereabouts.nodes, &anew.nodes);
            prop_assert_eq!(addresses(&whereabouts), addresses(&anew));
        }
    }
}
