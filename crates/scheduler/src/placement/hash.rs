//! By name alone: the fitting nodes in order, and the hash of the replica's printed id picks one.
//!
//! Kept because its users rely on where a name lands. It does not level anything: half of all names put two of
//! three replicas on one of three nodes.

use super::Batch;
use crate::view::NodeIx;

/// Fills a batch. A node that is full leaves the list, as it would if the list were made anew.
pub(super) fn fill(batch: &mut Batch<'_>) {
    let mut fitting = all_fitting(batch);
    while let Some(next) = batch.vacancies.as_slice().first() {
        let name = next.slot.printed(&batch.ask.key);
        let Some(at) = (fnv1a_32(name.as_bytes()) as usize).checked_rem(fitting.len()) else { return };
        let node = fitting[at];
        batch.place_on(node);
        if batch.ask.spec.placement.max_skew.is_some() {
            // What a skew forbade, this placement may allow.
            fitting = all_fitting(batch);
        } else if batch.ask.is_volatile() {
            fitting.retain(|node| batch.ask.accepts(batch.view, *node));
        } else if !batch.ask.accepts(batch.view, node) {
            fitting.remove(at);
        }
    }
}

fn all_fitting(batch: &Batch<'_>) -> Vec<NodeIx> {
    batch.view.fleet.in_order().filter(|node| batch.ask.accepts(batch.view, *node)).collect()
}

/// The 32-bit FNV-1a hash.
fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // Vectors of the FNV reference.
        assert_eq!(fnv1a_32(b""), 0x811c_9dc5);
        assert_eq!(fnv1a_32(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a_32(b"foobar"), 0xbf9c_f968);
    }
}
