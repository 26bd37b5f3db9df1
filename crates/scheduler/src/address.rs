//! Overlay addresses: a cluster /48 is split into a block for each node, and a replica gets one address of its node's
//! block.
//!
//! ```text
//! fd4c:6f6e:6773 : 0007 : 0000:0000:0000:0003
//! cluster /48      block  replica on that node
//! ```
//!
//! Subnet 0 is reserved for the nodes themselves, so that no replica ever has a node's address.
//!
//! Owns: which addresses of a node are taken or in cooldown.
//! Must not touch: time. The view frees an address when its cooldown is over.
//! Invariant: the lowest address neither taken nor in cooldown is given out, so the same state gives the same address.

use std::net::Ipv6Addr;

/// The addresses of one node, as a bitmap over host numbers, number 1 first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressPool {
    limit: Option<u64>,
    taken: Vec<u64>,
    count: u64,
    /// No word before this one has a free bit.
    first_open_word: usize,
}

impl AddressPool {
    pub(crate) fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    pub(crate) fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.count < limit)
    }

    /// Takes the lowest free host number.
    pub(crate) fn take_lowest(&mut self) -> u64 {
        while self.taken.get(self.first_open_word).is_some_and(|word| *word == u64::MAX) {
            self.first_open_word += 1;
        }
        let word = self.taken.get(self.first_open_word).copied().unwrap_or(0);
        let host = self.first_open_word as u64 * 64 + u64::from(word.trailing_ones()) + 1;
        self.mark_taken(host);
        host
    }

    /// Marks a host number as taken or in cooldown. Returns whether it was free before.
    pub(crate) fn mark_taken(&mut self, host: u64) -> bool {
        let (word, bit) = Self::place(host);
        if self.taken.len() <= word {
            self.taken.resize(word + 1, 0);
        }
        let was_free = self.taken[word] & bit == 0;
        self.count += u64::from(was_free);
        self.taken[word] |= bit;
        was_free
    }

    /// Frees a host number; a number that is free already is ignored.
    pub(crate) fn free(&mut self, host: u64) {
        let (word, bit) = Self::place(host);
        if let Some(bits) = self.taken.get_mut(word)
            && *bits & bit != 0
        {
            *bits &= !bit;
            self.count -= 1;
            self.first_open_word = self.first_open_word.min(word);
        }
    }

    fn place(host: u64) -> (usize, u64) {
        let index = host.saturating_sub(1);
        // A node has far fewer than 2^32 replicas, and `mark_taken` is only called with numbers it handed out or that a
        // committed assignment carries, so the word always fits.
        (usize::try_from(index / 64).unwrap_or(usize::MAX), 1 << (index % 64))
    }
}

/// The host number inside an address: its last 48 bits, because the 16 before them are a part of a large block number.
pub(crate) fn host(address: Ipv6Addr) -> u64 {
    let [_, _, _, _, _, _, _, _, low @ ..] = address.octets();
    u64::from_be_bytes(low) << 16 >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_address_is_given_out() {
        let mut pool = AddressPool::default();
        let given: Vec<u64> = (0..70).map(|_| pool.take_lowest()).collect();
        assert_eq!(given, (1..=70).collect::<Vec<u64>>());
        pool.free(3);
        pool.free(66);
        assert_eq!([pool.take_lowest(), pool.take_lowest(), pool.take_lowest()], [3, 66, 71]);
    }

    #[test]
    fn a_full_pool_has_no_room_and_freeing_twice_counts_once() {
        let mut pool = AddressPool::default();
        pool.set_limit(Some(2));
        let first = pool.take_lowest();
        pool.take_lowest();
        assert!(!pool.has_room());
        pool.free(first);
        pool.free(first);
        pool.take_lowest();
        assert!(!pool.has_room());
    }

    #[test]
    fn an_address_names_its_block_and_replica() {
        let plan = longshore_model::ClusterConfig::default().address_plan();
        let made = plan.replica_ipv6(7, 3);
        assert_eq!(made.to_string(), "fd4c:6f6e:6773:7::3");
        assert_eq!([host(made), host(plan.replica_ipv6(65_543, 3))], [3, 3]);
    }
}
