//! A volume is held only on its home node, and by one replica only if it is exclusive or belongs to another deployment.

use longshore_model::{ReplicaKey, VolumeKey, volume::Sharing};
use longshore_store::State;

use super::shadow_state::ShadowState;

pub(super) const NAME: &str = "volumes";

pub(super) fn check(shadow: &ShadowState, state: &State, volume: &VolumeKey) -> Vec<String> {
    let mut messages = Vec::new();
    let known = state.volume(volume);
    let mut holders: Vec<&ReplicaKey> = Vec::new();
    let mut alone = false;
    for (key, (node, sharing)) in shadow.volume_holders(volume) {
        match known {
            Some(known) if known.home == *node => {}
            Some(known) => {
                messages.push(format!("{key} on {node} holds {volume}, whose home is {}", known.home));
            }
            None => messages.push(format!("{key} holds {volume}, which does not exist")),
        }
        if *sharing == Sharing::OneOff {
            continue;
        }
        let foreign = known.is_some_and(|known| known.owner != key.group.deployment);
        alone |= *sharing == Sharing::Exclusive || foreign;
        holders.push(key);
    }
    if alone && holders.len() > 1 {
        let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
        messages.push(format!("{volume} is held by {}", names.join(" and ")));
    }
    messages
}
