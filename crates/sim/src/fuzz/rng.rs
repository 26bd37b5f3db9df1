//! Seeded random numbers.
//!
//! Owns: the random streams of fuzzing and of message faults.
//! Must not touch: any other source of randomness.
//! Invariant: a stream depends on its seed and its name alone, so that a new stream changes none of the others.

/// One random stream (`SplitMix64`: small, well distributed, and the same on every machine).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream named `kind`.
    pub(crate) fn new(seed: u64, kind: &str) -> Self {
        // FNV-1a hashes the name; the first number mixes name and seed thoroughly.
        let name = kind
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut rng = Self(seed ^ name);
        rng.0 = rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        // The span is tiny compared with 2^64, so the bias of the remainder does not matter.
        least + self.next() % (most - least + 1)
    }

    /// `true` with a probability of so many percent.
    pub(crate) fn percent(&mut self, chances: u64) -> bool {
        self.between(1, 100) <= chances
    }

    /// `true` with a probability of so many millionths. Zero takes no number from the stream.
    pub(crate) fn millionths(&mut self, chances: u32) -> bool {
        chances > 0 && self.between(1, 1_000_000) <= u64::from(chances)
    }

    /// A random element of a slice that is not empty.
    pub(crate) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        let most = from.len() as u64 - 1;
        &from[usize::try_from(self.between(0, most)).expect("an index fits")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_reproducible_and_differs_by_seed_and_name() {
        let numbers = |seed, kind| {
            let mut rng = Rng::new(seed, kind);
            (0..4).map(|_| rng.between(0, 999)).collect::<Vec<u64>>()
        };
        assert_eq!(numbers(7, "nodes"), numbers(7, "nodes"));
        assert_ne!(numbers(7, "nodes"), numbers(8, "nodes"));
        assert_ne!(numbers(7, "nodes"), numbers(7, "images"));
    }

    #[test]
    fn every_number_of_a_range_comes_up() {
        let mut rng = Rng::new(1, "faces");
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| rng.between(3, 8)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<u64>>(), [3, 4, 5, 6, 7, 8]);
    }
}
