//! Chance from a seed.

/// splitmix64: small, and the seed says everything.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// What this seed gives.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`; 0 if that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From `from` on, up to and without `end`.
    pub(crate) fn between(&mut self, from: u64, end: u64) -> u64 {
        from + self.below(end.saturating_sub(from))
    }

    /// True in so many of a thousand cases.
    pub(crate) fn permille(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// One of these.
    ///
    /// # Panics
    /// There are none.
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap_or(0)].clone()
    }

    /// Another generator, which goes its own way.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

/// FNV-1a, for traces and bodies: what differs is to be seen, nobody tries to deceive.
pub(crate) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
