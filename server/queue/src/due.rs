//! When a delayed message may be delivered, and in which order of priority it then stands.

use boltq_core::Millis;
use boltq_core::limits::PRIORITY_MAX;

use crate::timetable::Slot;

/// Bits of a packed due time that are the priority.
const PRIORITY_BITS: u32 = 4;
/// The latest due time, in 36 million years. What is later is due then.
const AT_MAX: u64 = u64::MAX >> PRIORITY_BITS;

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// At most [`AT_MAX`].
    at: Millis,
    priority: u8,
}

impl Due {
    pub(crate) fn new(at: Millis, priority: u8) -> Self {
        Self {
            at: at.min(Millis(AT_MAX)),
            priority: priority.min(PRIORITY_MAX),
        }
    }

    pub(crate) fn priority(self) -> u8 {
        self.priority
    }

    /// The order of delivery: highest priority first, then by due time.
    pub(crate) fn order(self) -> u64 {
        Self::order_from(self.priority) | self.at.0
    }

    /// Where the order of a priority begins.
    pub(crate) fn order_from(priority: u8) -> u64 {
        u64::from(PRIORITY_MAX.saturating_sub(priority)) << (u64::BITS - PRIORITY_BITS)
    }
}

impl Slot for Due {
    fn pack(self) -> u64 {
        self.at.0 << PRIORITY_BITS | u64::from(self.priority)
    }

    fn unpack(packed: u64) -> Self {
        Self {
            at: Millis(packed >> PRIORITY_BITS),
            priority: packed.to_le_bytes()[0] & ((1 << PRIORITY_BITS) - 1),
        }
    }

    fn is_packed(packed: u64) -> bool {
        Self::unpack(packed).priority <= PRIORITY_MAX
    }

    fn at(self) -> Millis {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_time_comes_back_as_it_was_packed_and_what_is_too_late_is_cut_off() {
        for at in [0, 1, 1_800_000_000_000, AT_MAX] {
            for priority in 0..=PRIORITY_MAX {
                let due = Due::new(Millis(at), priority);
                assert_eq!((Due::unpack(due.pack()), due.at()), (due, Millis(at)));
                assert!(Due::is_packed(due.pack()));
            }
        }
        assert_eq!(Due::new(Millis::MAX, 0).at(), Millis(AT_MAX));
        assert!(!Due::is_packed(10));
    }

    #[test]
    fn the_order_is_by_priority_then_by_time() {
        let order = |priority, at| Due::new(Millis(at), priority).order();
        assert!(order(9, AT_MAX) < order(8, 0) && order(3, 5) < order(3, 6));
        assert!(order(1, AT_MAX) < Due::order_from(0) && Due::order_from(0) <= order(0, 0));
    }
}
