//! Random choices that can be repeated.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// `SplitMix64` (Steele, Lea, Flood, 2014): small, good enough for choosing moments and sizes, the same everywhere.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The same seed gives the same numbers.
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A seed from `BOLTQ_TEST_SEED`, else from the clock. Prints it, so that a failure can be repeated.
    pub fn from_environment(test: &str) -> Self {
        let seed = match std::env::var("BOLTQ_TEST_SEED") {
            Ok(text) => text.parse().expect("BOLTQ_TEST_SEED is a number"),
            Err(_) => {
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .expect("a clock after 1970");
                u64::from(now.subsec_nanos()) ^ now.as_secs()
            }
        };
        println!("seed {seed}; repeat with BOLTQ_TEST_SEED={seed} cargo test -p boltq-tests {test}");
        Self::seeded(seed)
    }

    /// The next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let value = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    /// A number of `range`, which is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start)
    }

    /// `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.number().to_le_bytes()[0]).collect()
    }
}
