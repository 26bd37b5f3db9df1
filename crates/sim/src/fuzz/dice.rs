//! Chance, from a seed.
//!
//! Owns: the streams of numbers everything random is drawn from.
//! Must not touch: any other source of chance.
//! Invariant: a stream depends on its seed and its name alone, so that a new kind of thing renumbers none of the old.

/// One stream of numbers (`SplitMix64`: small, well spread, and the same on every machine).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The stream of one kind of thing.
    pub(crate) fn new(seed: u64, kind: &str) -> Self {
        // FNV-1a tells the names apart; the first draw mixes name and seed thoroughly.
        let name = kind
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut dice = Self(seed ^ name);
        dice.0 = dice.next();
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` to `most`, both possible.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        // The span is tiny beside 2^64, so that the bias of the remainder cannot be seen.
        least + self.next() % (most - least + 1)
    }

    /// Whether something with so many chances in a hundred happens.
    pub(crate) fn percent(&mut self, chances: u64) -> bool {
        self.between(1, 100) <= chances
    }

    /// Whether something with so many chances in a million happens. A chance of none draws nothing.
    pub(crate) fn millionths(&mut self, chances: u32) -> bool {
        chances > 0 && self.between(1, 1_000_000) <= u64::from(chances)
    }

    /// One of several.
    pub(crate) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        let most = from.len() as u64 - 1;
        &from[usize::try_from(self.between(0, most)).expect("an index fits")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_the_same_every_time_and_unlike_its_neighbours() {
        let draw = |seed, kind| {
            let mut dice = Dice::new(seed, kind);
            (0..4).map(|_| dice.between(0, 999)).collect::<Vec<u64>>()
        };
        assert_eq!(draw(7, "nodes"), draw(7, "nodes"));
        assert_ne!(draw(7, "nodes"), draw(8, "nodes"));
        assert_ne!(draw(7, "nodes"), draw(7, "images"));
    }

    #[test]
    fn every_face_comes_up() {
        let mut dice = Dice::new(1, "faces");
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| dice.between(3, 8)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<u64>>(), [3, 4, 5, 6, 7, 8]);
    }
}
