//! What carries a replica's key is written exactly as when group, slot and generation were loose fields.

use std::{net::Ipv6Addr, sync::Arc, time::Duration};

use longshore_model::{
    Attempt, Generation, GroupKey, NodeName, Observation, Placement, PlanItem, ReplicaState, Reservation, RuntimeCode,
    SlotIndex, SlotKey, Time, VolumeKey,
    device::TakenDevices,
    rebalance::{Move, MoveCause, RebalanceScore, Share},
    replica::Details,
};
use serde::{Serialize, de::DeserializeOwned};

#[derive(Serialize)]
struct LooseObservation {
    group: GroupKey,
    slot: SlotKey,
    generation: Generation,
    attempt: Attempt,
    #[serde(skip_serializing_if = "Option::is_none")]
    placed_at: Option<Time>,
    state: ReplicaState,
    code: Option<RuntimeCode>,
    details: Details,
    at: Time,
}

#[derive(Serialize)]
struct LooseMove {
    group: GroupKey,
    slot: SlotKey,
    generation: Generation,
    to: NodeName,
    at: Time,
    weighed: RebalanceScore,
}

#[derive(Serialize)]
struct LoosePlacement {
    slot: SlotKey,
    generation: Generation,
    node: NodeName,
    address: Ipv6Addr,
    new_volumes: Vec<VolumeKey>,
    devices: TakenDevices,
    terms: Option<Arc<Reservation>>,
    moved: Option<Box<RebalanceScore>>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum LooseItem {
    Place(LoosePlacement),
    Stop { slot: SlotKey, generation: Generation },
    Restart { slot: SlotKey, generation: Generation, attempt: Attempt },
    Reschedule { slot: SlotKey, generation: Generation, delay: Duration },
    Collect { slot: SlotKey, generation: Generation },
    GiveUp { slot: SlotKey, generation: Generation, code: RuntimeCode },
}

const GENERATION: Generation = Generation(7);

fn group() -> GroupKey {
    GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() }
}

fn slot() -> SlotKey {
    SlotKey::Index(SlotIndex(3))
}

fn score() -> RebalanceScore {
    RebalanceScore {
        cause: MoveCause::Pressure,
        src: "a".into(),
        dst: Some("b".into()),
        dominant: None,
        relief: Some(Share(250_000)),
        score: None,
        move_cost: Share::NONE,
        src_before: None,
        src_after: None,
        dst_before: None,
        dst_after: None,
    }
}

fn check<Loose: Serialize, Whole>(loose: &Loose, whole: &Whole)
where
    Whole: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let bytes = rmp_serde::to_vec_named(loose).unwrap();
    assert_eq!(rmp_serde::to_vec_named(whole).unwrap(), bytes);
    assert_eq!(&rmp_serde::from_slice::<Whole>(&bytes).unwrap(), whole);
    let text = serde_json::to_string(loose).unwrap();
    assert_eq!(serde_json::to_string(whole).unwrap(), text);
    assert_eq!(&serde_json::from_str::<Whole>(&text).unwrap(), whole);
}

#[test]
fn an_observation_and_a_move_are_written_as_with_loose_fields() {
    let (attempt, state, code) = (Attempt(2), ReplicaState::Failed, Some(RuntimeCode::Exited));
    for placed_at in [None, Some(Time(5))] {
        let details = Details::new();
        let (group, slot, generation, at) = (group(), slot(), GENERATION, Time(9));
        let key = group.replica(&slot, generation);
        let whole = Observation { key, attempt, placed_at, state, code, details: details.clone(), at };
        check(&LooseObservation { group, slot, generation, attempt, placed_at, state, code, details, at }, &whole);
    }
    let (to, at) = (NodeName::from("b"), Time(9));
    let whole = Move { key: group().replica(&slot(), GENERATION), to: to.clone(), at, score: score() };
    check(&LooseMove { group: group(), slot: slot(), generation: GENERATION, to, at, weighed: score() }, &whole);
}

#[test]
fn every_plan_item_about_a_generation_is_written_as_with_loose_fields() {
    let (slot, generation) = (slot(), GENERATION);
    let key = slot.generation(generation);
    check(&LooseItem::Stop { slot: slot.clone(), generation }, &PlanItem::Stop(key.clone()));
    check(&LooseItem::Collect { slot: slot.clone(), generation }, &PlanItem::Collect(key.clone()));
    let attempt = Attempt(4);
    check(
        &LooseItem::Restart { slot: slot.clone(), generation, attempt },
        &PlanItem::Restart { key: key.clone(), attempt },
    );
    let delay = Duration::from_millis(1500);
    check(
        &LooseItem::Reschedule { slot: slot.clone(), generation, delay },
        &PlanItem::Reschedule { key: key.clone(), delay },
    );
    let code = RuntimeCode::RestartExhausted;
    check(&LooseItem::GiveUp { slot: slot.clone(), generation, code }, &PlanItem::GiveUp { key: key.clone(), code });

    let (node, address) = (NodeName::from("b"), Ipv6Addr::LOCALHOST);
    let new_volumes = vec![VolumeKey { namespace: "default".into(), name: "shop_data".into() }];
    let (devices, terms) = (TakenDevices::default(), Some(Arc::new(Reservation::default())));
    let moved = Some(Box::new(score()));
    let whole = Placement {
        key,
        node: node.clone(),
        address,
        new_volumes: new_volumes.clone(),
        devices: devices.clone(),
        reservation: terms.clone(),
        moved: moved.clone(),
    };
    let loose = LoosePlacement { slot, generation, node, address, new_volumes, devices, terms, moved };
    check(&LooseItem::Place(loose), &PlanItem::Place(whole));
}
