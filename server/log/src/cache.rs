//! Bodies of frames in memory.
//!
//! What is not written yet is here whatever the bound, because it is nowhere else. Once written it can be evicted: first
//! in, first out, with a second chance for what was read meanwhile. Hits take the lock for reading only.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;

use crate::types::FrameKey;

/// What a slot costs besides the bytes in it.
const SLOT_BYTES: u64 = 96;

#[derive(Debug)]
pub(crate) struct Cache {
    slots: RwLock<Slots>,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Slots {
    frames: HashMap<FrameKey, Slot>,
    /// Frames that can be evicted, oldest first.
    order: VecDeque<FrameKey>,
    bytes: u64,
    unwritten_bytes: u64,
}

#[derive(Debug)]
struct Slot {
    body: Bytes,
    written: bool,
    used: AtomicBool,
}

impl Slot {
    fn bytes(&self) -> u64 {
        self.body.len() as u64 + SLOT_BYTES
    }
}

impl Cache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            slots: RwLock::default(),
            bytes_max,
        }
    }

    pub(crate) fn get(&self, key: FrameKey) -> Option<Bytes> {
        let slots = self.slots.read();
        let slot = slots.frames.get(&key)?;
        slot.used.store(true, Ordering::Relaxed);
        Some(slot.body.clone())
    }

    /// Keeps frames that are about to be written.
    pub(crate) fn insert_unwritten(&self, frames: impl Iterator<Item = (FrameKey, Bytes)>) {
        let mut slots = self.slots.write();
        for (key, body) in frames {
            let slot = Slot {
                body,
                written: false,
                used: AtomicBool::new(false),
            };
            slots.unwritten_bytes += slot.bytes();
            slots.frames.insert(key, slot);
        }
    }

    /// The frames are in their file now.
    pub(crate) fn written(&self, frames: impl Iterator<Item = FrameKey>) {
        let mut guard = self.slots.write();
        let slots = &mut *guard;
        for key in frames {
            if let Some(slot) = slots.frames.get_mut(&key) {
                slot.written = true;
                slots.unwritten_bytes -= slot.bytes();
                slots.bytes += slot.bytes();
                slots.order.push_back(key);
            }
        }
        slots.evict(self.bytes_max);
    }

    /// Keeps a frame that was read.
    pub(crate) fn insert(&self, key: FrameKey, body: Bytes) {
        let slot = Slot {
            body,
            written: true,
            used: AtomicBool::new(false),
        };
        if slot.bytes() > self.bytes_max {
            return;
        }
        let mut slots = self.slots.write();
        // Two may have read it at the same time.
        if slots.frames.contains_key(&key) {
            return;
        }
        slots.bytes += slot.bytes();
        slots.frames.insert(key, slot);
        slots.order.push_back(key);
        slots.evict(self.bytes_max);
    }

    /// Drops a frame, unless it is nowhere else yet.
    pub(crate) fn forget(&self, key: FrameKey) {
        let mut slots = self.slots.write();
        // Its place in the order is passed over later.
        if slots.frames.get(&key).is_some_and(|slot| slot.written)
            && let Some(slot) = slots.frames.remove(&key)
        {
            slots.bytes -= slot.bytes();
        }
    }

    /// Bytes that can be evicted, and bytes that are not written.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let slots = self.slots.read();
        (slots.bytes, slots.unwritten_bytes)
    }
}

impl Slots {
    fn evict(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let Some(key) = self.order.pop_front() else { return };
            let Some(slot) = self.frames.get(&key) else { continue };
            debug_assert!(slot.written, "only written frames stand in the order");
            if slot.used.swap(false, Ordering::Relaxed) {
                self.order.push_back(key);
            } else {
                self.bytes -= slot.bytes();
                self.frames.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileId;

    fn key(offset: u32) -> FrameKey {
        FrameKey {
            file: FileId(1),
            offset,
        }
    }

    fn body() -> Bytes {
        Bytes::from_static(&[7; 1000])
    }

    #[test]
    fn the_bound_holds_and_what_was_read_gets_a_second_chance() {
        let cache = Cache::new(5 * (1000 + SLOT_BYTES));
        for offset in 0..5 {
            cache.insert(key(offset), body());
        }
        assert!(cache.get(key(0)).is_some());
        cache.insert(key(5), body());
        assert!(cache.get(key(0)).is_some(), "was read");
        assert!(cache.get(key(1)).is_none(), "was the oldest that nobody read");
        assert!(cache.bytes().0 <= 5 * (1000 + SLOT_BYTES));
    }

    #[test]
    fn what_is_not_written_stays_whatever_the_bound() {
        let cache = Cache::new(0);
        cache.insert_unwritten([(key(1), body()), (key(2), body())].into_iter());
        assert!(cache.get(key(1)).is_some() && cache.get(key(2)).is_some());
        cache.written([key(1)].into_iter());
        assert!(cache.get(key(1)).is_none());
        assert!(cache.get(key(2)).is_some());
        assert_eq!(cache.bytes(), (0, 1000 + SLOT_BYTES));
    }

    #[test]
    fn a_frame_over_the_bound_is_not_kept_and_evicts_nothing() {
        let cache = Cache::new(1200);
        cache.insert(key(1), body());
        cache.insert(key(2), Bytes::from_static(&[0; 4000]));
        assert!(cache.get(key(1)).is_some());
        assert!(cache.get(key(2)).is_none());
    }
}
