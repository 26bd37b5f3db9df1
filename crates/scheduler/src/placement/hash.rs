//! `hash`: the hash of the replica's printed id selects one of the fitting nodes, in name order.
//!
//! Kept because its users rely on where a name is placed. It balances nothing: half of all names put two of three
//! replicas on one of three nodes.

use super::Batch;
use crate::view::NodeIx;

/// Places a batch. A node that becomes full leaves the list, as if the list were rebuilt.
pub(super) fn fill(batch: &mut Batch<'_>) {
    let mut fitting = all_fitting(batch);
    while let Some(next) = batch.pending_slots.as_slice().first() {
        let name = next.slot.replica_id(&batch.request.key);
        let Some(at) = (fnv1a_32(name.as_bytes()) as usize).checked_rem(fitting.len()) else { return };
        let node = fitting[at];
        batch.place_on(node);
        if batch.request.spec.placement.max_skew.is_some() {
            // With a skew limit this placement may allow nodes that were refused before.
            fitting = all_fitting(batch);
        } else if batch.request.needs_recheck() {
            fitting.retain(|node| batch.request.accepts(batch.view, *node));
        } else if !batch.request.accepts(batch.view, node) {
            fitting.remove(at);
        }
    }
}

fn all_fitting(batch: &Batch<'_>) -> Vec<NodeIx> {
    batch.view.nodes.by_name_order().filter(|node| batch.request.accepts(batch.view, *node)).collect()
}

/// The 32-bit FNV-1a hash.
fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_matches_the_fnv_reference_vectors() {
        assert_eq!(fnv1a_32(b""), 0x811c_9dc5);
        assert_eq!(fnv1a_32(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a_32(b"foobar"), 0xbf9c_f968);
    }
}
