//! A volume is held only on its home, by one replica if it is exclusive or another deployment's.

use longshore_model::{VolumeKey, volume::Sharing};
use longshore_store::State;

use super::ledger::{Ledger, Tenant};

pub(super) const NAME: &str = "volumes";

pub(super) fn check(ledger: &Ledger, state: &State, volume: &VolumeKey) -> Vec<String> {
    let mut messages = Vec::new();
    let known = state.volume(volume);
    let mut holders: Vec<&Tenant> = Vec::new();
    let mut alone = false;
    for (tenant, (node, sharing)) in ledger.holders(volume) {
        match known {
            Some(known) if known.home == *node => {}
            Some(known) => {
                messages.push(format!("{} on {node} holds {volume}, whose home is {}", tenant.printed(), known.home));
            }
            None => messages.push(format!("{} holds {volume}, which does not exist", tenant.printed())),
        }
        let foreign = known.is_some_and(|known| known.owner != tenant.group.deployment);
        alone |= *sharing == Sharing::Exclusive || foreign;
        holders.push(tenant);
    }
    if alone && holders.len() > 1 {
        let names: Vec<String> = holders.iter().map(|tenant| tenant.printed()).collect();
        messages.push(format!("{volume} is held by {}", names.join(" and ")));
    }
    messages
}
