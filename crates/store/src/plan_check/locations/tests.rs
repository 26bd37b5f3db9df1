//! The index compared with a walk over all replicas, over random histories.

use std::sync::Arc;

use longshore_model::{
    Attempt, Command, Generation, GroupPlan, Placement, PlanItem, ReplicaState, Reservation, SlotIndex, SlotKey,
    VolumeKey,
    command::Observation,
    replica::{Details, HeldVolume, HostPort},
    service::Protocol,
    volume::Sharing,
};
use proptest::prelude::*;

use super::{
    super::{
        drop_stale_placements as walk,
        tests::{GIB, cluster, group},
    },
    *,
};

const NODES: [&str; 3] = ["a", "b", "c"];
const SERVICES: [&str; 2] = ["web", "db"];

/// A random placement: service, slot, node, address, and which resource it reserves.
type Drawn = (usize, u32, usize, u16, u8);

fn placement() -> impl Strategy<Value = Drawn> {
    (0..SERVICES.len(), 0_u32..5, 0..NODES.len(), 0_u16..12, 0_u8..5)
}

fn volume() -> VolumeKey {
    VolumeKey { namespace: longshore_model::NamespaceName::default_namespace(), name: "shop_data".into() }
}

fn reservation(takes: u8) -> Reservation {
    let held = |sharing| vec![HeldVolume { key: volume(), sharing }];
    match takes {
        0 => Reservation { memory_bytes: GIB, ..Reservation::default() },
        1 => Reservation { host_ports: vec![HostPort { protocol: Protocol::Tcp, port: 80 }], ..Reservation::default() },
        2 => Reservation { volumes: held(Sharing::Deployment), ..Reservation::default() },
        3 => Reservation { volumes: held(Sharing::Exclusive), ..Reservation::default() },
        _ => Reservation {
            kind: longshore_model::service::ServiceKind::Batch,
            memory_bytes: GIB / 2,
            ..Reservation::default()
        },
    }
}

fn plan(state: &State, drawn: &[Drawn], now: u64) -> Plan {
    let part = |&(service, slot, node, address, takes): &Drawn| {
        let (group, slot) = (group(SERVICES[service]), SlotKey::Index(SlotIndex(slot)));
        let newest = state.group(&group).and_then(|group| group.slots.get(&slot)).map_or(0, |slot| slot.newest.0);
        let reservation = reservation(takes);
        let new_volumes = reservation.volumes.iter().map(|held| held.key.clone()).collect();
        let placement = Placement {
            key: slot.generation(Generation(newest + 1)),
            node: NODES[node].into(),
            address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, address),
            new_volumes,
            devices: longshore_model::device::TakenDevices::default(),
            reservation: None,
            moved: None,
        };
        GroupPlan { group, reservation: Arc::new(reservation), items: vec![PlanItem::Place(placement)] }
    };
    Plan { made_at: Time(now), groups: drawn.iter().map(part).collect(), ..Plan::default() }
}

/// Commands that change the `pick`-th replica: it is observed in some state, or is stopped and observed stopped.
fn outcome(state: &State, pick: usize, kind: u8, now: u64) -> Vec<Command> {
    let replicas: Vec<_> = state.replicas().collect();
    let Some((group, slot, replica)) = replicas.get(pick % replicas.len().max(1)) else { return Vec::new() };
    let seen = |state| {
        Command::Observe(Observation {
            key: (*group).replica(&slot.key, replica.generation),
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
            let stop = PlanItem::Stop(slot.key.generation(replica.generation));
            let part = GroupPlan { group: (*group).clone(), reservation: Arc::default(), items: vec![stop] };
            let plan = Plan { made_at: Time(now), groups: vec![part], ..Plan::default() };
            vec![Command::Commit(Box::new(plan)), seen(ReplicaState::Stopped)]
        }
    }
}

/// The generations of each address, sorted.
fn addresses(locations: &Locations) -> BTreeMap<Ipv6Addr, BTreeSet<ReplicaKey>> {
    let having = locations.addresses.iter();
    having.map(|(address, keys)| (*address, keys.iter().cloned().collect())).collect()
}

proptest! {
    #[test]
    fn the_index_gives_the_same_result_as_a_walk_over_all_replicas(
        steps in prop::collection::vec((prop::collection::vec(placement(), 0..4), 0_usize..9, 0_u8..5), 1..30),
    ) {
        let mut state = cluster(&NODES);
        let mut locations = Locations::of(&state);
        for ((drawn, pick, kind), now) in steps.into_iter().zip((0..).step_by(900_000)) {
            let wanted = plan(&state, &drawn, now);
            let (mut by_index, mut by_walk) = (wanted.clone(), wanted);
            prop_assert_eq!(locations.drop_stale_placements(&state, &mut by_index), walk(&state, &mut by_walk));
            prop_assert_eq!(&by_index, &by_walk);

            let mut commands = vec![Command::Commit(Box::new(by_index))];
            commands.extend(outcome(&state, pick, kind, now));
            for command in commands {
                locations.follow(&state.apply(command).unwrap());
            }
            let rebuilt = Locations::of(&state);
            prop_assert_eq!(&locations.nodes, &rebuilt.nodes);
            prop_assert_eq!(addresses(&locations), addresses(&rebuilt));
        }
    }
}
