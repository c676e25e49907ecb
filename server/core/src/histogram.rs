//! How often something was how long, or how large: what is counted for those who watch a server, and what they see of it.
//!
//! A histogram has a fixed number of classes and costs two additions for each value, or for a whole [`Tally`] of them, and
//! nobody waits for anybody. It knows no clock: whoever has measured says what. A value is counted in the first class that ends
//! with it or after it; beyond the last end there is one class more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Ends that a scale has.
pub const ENDS: usize = 17;
/// Classes of a histogram: those that end, and the one beyond.
const CLASSES: usize = ENDS + 1;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000 * MICRO;
const SECOND: u64 = 1_000 * MILLI;

/// Where the classes of a histogram end.
#[derive(Debug, PartialEq, Eq)]
pub struct Scale {
    /// Rising.
    pub ends: [u64; ENDS],
    /// What the ends and the values have to be divided by to be in the unit that they are shown in.
    pub per_unit: u64,
}

/// Nanoseconds, shown in seconds: from what a fast device takes to what nobody waits for.
pub static LATENCY: Scale = Scale {
    ends: [
        100 * MICRO,
        250 * MICRO,
        500 * MICRO,
        MILLI,
        2_500 * MICRO,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        SECOND,
        2_500 * MILLI,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
    ],
    per_unit: SECOND,
};

/// Nanoseconds, shown in seconds: what people and programs take for a piece of work, to the longest lease.
pub static WORK: Scale = Scale {
    ends: [
        MILLI,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        SECOND,
        2_500 * MILLI,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
        60 * SECOND,
        300 * SECOND,
        1_800 * SECOND,
        43_200 * SECOND,
    ],
    per_unit: SECOND,
};

/// How many, by powers of two.
pub static COUNT: Scale = Scale {
    ends: [
        1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536,
    ],
    per_unit: 1,
};

impl Scale {
    fn class(&self, value: u64) -> usize {
        self.ends.partition_point(|end| *end < value)
    }
}

/// Values as they are counted.
#[derive(Debug)]
pub struct Histogram {
    scale: &'static Scale,
    classes: [AtomicU64; CLASSES],
    sum: AtomicU64,
}

impl Histogram {
    /// Without values.
    #[must_use]
    pub fn new(scale: &'static Scale) -> Self {
        Self {
            scale,
            classes: Default::default(),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts a value.
    pub fn record(&self, value: u64) {
        // Nothing is ordered by them.
        self.classes[self.scale.class(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts a time, on a scale of nanoseconds.
    pub fn record_time(&self, took: Duration) {
        self.record(nanos(took));
    }

    /// No values, to be counted in here together.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally {
            scale: self.scale,
            classes: [0; CLASSES],
            sum: 0,
        }
    }

    /// Counts what was gathered.
    pub fn record_all(&self, tally: &Tally) {
        for (class, count) in self.classes.iter().zip(tally.classes) {
            if count > 0 {
                class.fetch_add(count, Ordering::Relaxed);
            }
        }
        if tally.sum > 0 {
            self.sum.fetch_add(tally.sum, Ordering::Relaxed);
        }
    }

    /// What was counted so far. Values that come meanwhile may be in one part of it and not in the other.
    #[must_use]
    pub fn get(&self) -> Distribution {
        Distribution {
            scale: self.scale,
            classes: std::array::from_fn(|class| self.classes[class].load(Ordering::Relaxed)),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// Values of a batch, gathered where nobody else looks.
#[derive(Debug)]
pub struct Tally {
    scale: &'static Scale,
    classes: [u64; CLASSES],
    sum: u64,
}

impl Tally {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.classes[self.scale.class(value)] += 1;
        self.sum = self.sum.saturating_add(value);
    }
}

/// What a histogram has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distribution {
    /// Where the classes end.
    pub scale: &'static Scale,
    /// How many there are in each class, without those of the class before.
    pub classes: [u64; CLASSES],
    /// Of all values.
    pub sum: u64,
}

impl Distribution {
    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// No latencies.
impl Default for Distribution {
    fn default() -> Self {
        Histogram::new(&LATENCY).get()
    }
}

/// As it is counted.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_class_that_ends_with_it_or_after_it() {
        let histogram = Histogram::new(&LATENCY);
        for (micros, class) in [
            (0, 0),
            (100, 0),
            (101, 1),
            (1_000, 3),
            (30_000_000, 16),
            (30_000_001, 17),
        ] {
            let before = histogram.get().classes[class];
            histogram.record_time(Duration::from_micros(micros));
            assert_eq!(histogram.get().classes[class], before + 1, "{micros} us");
        }
        let all = histogram.get();
        assert_eq!(all.count(), 6);
        assert_eq!(
            all.sum,
            1_000 * (100 + 101 + 1_000 + 30_000_000 + 30_000_001),
            "in nanoseconds"
        );
    }

    #[test]
    fn a_tally_counts_as_its_values_do() {
        let (one_by_one, together) = (Histogram::new(&COUNT), Histogram::new(&COUNT));
        let mut tally = together.tally();
        for value in [0, 1, 2, 3, 65_536, 65_537, 65_537] {
            one_by_one.record(value);
            tally.add(value);
        }
        together.record_all(&tally);
        assert_eq!(together.get(), one_by_one.get());
        together.record_all(&together.tally());
        assert_eq!(together.get(), one_by_one.get());
    }

    #[test]
    fn ends_rise() {
        for scale in [&LATENCY, &WORK, &COUNT] {
            assert!(scale.ends.is_sorted_by(|one, next| one < next));
        }
    }
}
