//! The serialised forms of what carries a replica's key: the fields of the key stand beside the other fields.
//!
//! Logs and snapshots were first written that way and stay readable. `serde(flatten)` was refused: it collects every field
//! in a map first, on the path of each placement.
//!
//! Owns: those forms. Must not touch: the types themselves.
//! Invariant: names and order of the fields never change.

use std::{net::Ipv6Addr, sync::Arc, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    Attempt, Generation, GroupKey, NodeName, Observation, Placement, ReplicaKey, ReplicaState, Reservation,
    RuntimeCode, SlotKey, Time, VolumeKey,
    device::TakenDevices,
    rebalance::{Move, RebalanceScore},
    replica::Details,
    replica_key::SlotGeneration,
};

/// Serialises a type in its flat form.
macro_rules! flat {
    ($($whole:ident as $flat:ident;)*) => {$(
        impl Serialize for $whole {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $flat::serialize(self, serializer)
            }
        }

        impl<'de> Deserialize<'de> for $whole {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $flat::deserialize(deserializer)
            }
        }
    )*};
}

flat! {
    Placement as FlatPlacement;
    Move as FlatMove;
    Observation as FlatObservation;
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Placement", rename = "Placement")]
struct FlatPlacement {
    #[serde(getter = "slot_of_placement")]
    slot: SlotKey,
    #[serde(getter = "generation_of_placement")]
    generation: Generation,
    node: NodeName,
    address: Ipv6Addr,
    new_volumes: Vec<VolumeKey>,
    #[serde(default)]
    devices: TakenDevices,
    #[serde(default, rename = "terms")]
    reservation: Option<Arc<Reservation>>,
    #[serde(default)]
    moved: Option<Box<RebalanceScore>>,
}

const fn slot_of_placement(placement: &Placement) -> &SlotKey {
    &placement.key.slot
}

const fn generation_of_placement(placement: &Placement) -> Generation {
    placement.key.generation
}

impl From<FlatPlacement> for Placement {
    fn from(flat: FlatPlacement) -> Self {
        let FlatPlacement { slot, generation, node, address, new_volumes, devices, reservation, moved } = flat;
        let key = SlotGeneration { slot, generation };
        Self { key, node, address, new_volumes, devices, reservation, moved }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Move", rename = "Move")]
struct FlatMove {
    #[serde(getter = "group_of_move")]
    group: GroupKey,
    #[serde(getter = "slot_of_move")]
    slot: SlotKey,
    #[serde(getter = "generation_of_move")]
    generation: Generation,
    to: NodeName,
    at: Time,
    #[serde(rename = "weighed")]
    score: RebalanceScore,
}

const fn group_of_move(made: &Move) -> &GroupKey {
    &made.key.group
}

const fn slot_of_move(made: &Move) -> &SlotKey {
    &made.key.slot
}

const fn generation_of_move(made: &Move) -> Generation {
    made.key.generation
}

impl From<FlatMove> for Move {
    fn from(flat: FlatMove) -> Self {
        let FlatMove { group, slot, generation, to, at, score } = flat;
        Self { key: ReplicaKey { group, slot, generation }, to, at, score }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Observation", rename = "Observation")]
struct FlatObservation {
    #[serde(getter = "group_of_observation")]
    group: GroupKey,
    #[serde(getter = "slot_of_observation")]
    slot: SlotKey,
    #[serde(getter = "generation_of_observation")]
    generation: Generation,
    attempt: Attempt,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placed_at: Option<Time>,
    state: ReplicaState,
    code: Option<RuntimeCode>,
    details: Details,
    at: Time,
}

const fn group_of_observation(observation: &Observation) -> &GroupKey {
    &observation.key.group
}

const fn slot_of_observation(observation: &Observation) -> &SlotKey {
    &observation.key.slot
}

const fn generation_of_observation(observation: &Observation) -> Generation {
    observation.key.generation
}

impl From<FlatObservation> for Observation {
    fn from(flat: FlatObservation) -> Self {
        let FlatObservation { group, slot, generation, attempt, placed_at, state, code, details, at } = flat;
        Self { key: ReplicaKey { group, slot, generation }, attempt, placed_at, state, code, details, at }
    }
}

/// The flat form of a variant of [`PlanItem`](crate::PlanItem) with a key and one more field.
macro_rules! flat_variants {
    ($($name:ident { $field:ident: $kind:ty })*) => {$(
        pub(crate) mod $name {
            use super::{Deserialize, Deserializer, Generation, Serialize, Serializer, SlotGeneration, SlotKey};

            #[derive(Serialize, Deserialize)]
            struct Flat {
                slot: SlotKey,
                generation: Generation,
                $field: $kind,
            }

            pub(crate) fn serialize<S: Serializer>(
                key: &SlotGeneration,
                $field: &$kind,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let (slot, generation) = (key.slot.clone(), key.generation);
                Flat { slot, generation, $field: *$field }.serialize(serializer)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<(SlotGeneration, $kind), D::Error> {
                let Flat { slot, generation, $field } = Flat::deserialize(deserializer)?;
                Ok((SlotGeneration { slot, generation }, $field))
            }
        }
    )*};
}

flat_variants! {
    restart { attempt: super::Attempt }
    reschedule { delay: super::Duration }
    give_up { code: super::RuntimeCode }
}
