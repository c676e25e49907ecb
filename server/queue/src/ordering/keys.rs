//! Which key a message has that is not done: part of the replicated state.
//!
//! Eight bytes for each message, in chunks of neighbours. A chunk goes when all of its messages are done, so a message that
//! stays for long keeps at most 1 KiB. A copy shares the chunks until one of the two changes them.
//!
//! Always true: a chunk has a message that is not done; `open` is how many it has of them; there is a hash for each of them, in
//! the place of its sequence.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, KeyHash};
use bytes::BufMut;

use crate::machine::{Machine, Queue};
use crate::place::KEYED;
use crate::snapshot::{Parts, check};
use crate::window::Window;

/// Neighbours in a chunk.
const CHUNK: u64 = 128;

#[derive(Debug, Clone, Default)]
struct Chunk {
    /// From the first sequence of the chunk on; those of messages that are done mean nothing.
    hashes: Vec<KeyHash>,
    open: u64,
}

/// The keys of the messages of a queue that have one and are not done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    chunks: BTreeMap<u64, Arc<Chunk>>,
}

/// A sequence within its chunk.
fn index(seq: u64) -> usize {
    // Under 128.
    (seq % CHUNK) as usize
}

impl Keys {
    /// Adds the key of a message that is newer than all others.
    pub(crate) fn push(&mut self, seq: u64, key: KeyHash) {
        let chunk = Arc::make_mut(self.chunks.entry(seq / CHUNK).or_default());
        chunk.hashes.resize(index(seq), KeyHash::default());
        chunk.hashes.push(key);
        chunk.open += 1;
    }

    /// The key of a message that is not done.
    pub(crate) fn get(&self, seq: u64) -> KeyHash {
        let chunk = self.chunks.get(&(seq / CHUNK));
        let hash = chunk.and_then(|chunk| chunk.hashes.get(index(seq)));
        debug_assert!(hash.is_some(), "a message of this stream without a key");
        hash.copied().unwrap_or_default()
    }

    /// Forgets messages, none of which was done before.
    pub(crate) fn finish(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut done = Vec::new();
        let chunks = range.start / CHUNK..=(range.end - 1) / CHUNK;
        for (number, chunk) in self.chunks.range_mut(chunks) {
            let first = number * CHUNK;
            let part = range.start.max(first)..range.end.min(first + CHUNK);
            let open = chunk.open.saturating_sub(part.end - part.start);
            if open == 0 {
                done.push(*number);
            } else {
                Arc::make_mut(chunk).open = open;
            }
        }
        for number in done {
            self.chunks.remove(&number);
        }
    }

    fn len(&self) -> u64 {
        self.chunks.values().map(|chunk| chunk.open).sum()
    }
}

/// Queues with messages that have a key and are not done, in the order of their ids.
fn queues(machine: &Machine) -> impl Iterator<Item = (u32, &Queue, &Window)> {
    let queues = machine.queues.numbered();
    let keyed = queues.filter_map(|(id, queue)| Some((u32::try_from(id).ok()?, queue, queue.window(KEYED)?)));
    keyed.filter(|(_, _, window)| window.open_count() > 0)
}

pub(crate) fn is_empty(machine: &Machine) -> bool {
    queues(machine).next().is_none()
}

/// ```text
/// u32 number of queues; each, in the order of their ids:
///     u32 queue, u32 number of its messages that have a key and are not done
///     of each, in the order of their sequences: u64 FNV-1a of the key
/// ```
pub(crate) fn write_section(machine: &Machine, parts: &mut Parts) {
    codec::put_len(parts.bytes(), queues(machine).count());
    for (id, queue, window) in queues(machine) {
        parts.bytes().put_u32_le(id);
        codec::put_len(
            parts.bytes(),
            usize::try_from(window.open_count()).unwrap_or(usize::MAX),
        );
        parts.keys(&queue.keys, window.open_parts(0..u64::MAX));
    }
}

/// Reads the keys of a machine that has its queues.
pub(crate) fn read_section(machine: &mut Machine, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    const WHAT: &str = "ordering keys";
    let mut from = 0;
    for _ in 0..reader.count(8, WHAT)? {
        let id = reader.u32(WHAT)?;
        check(id >= from, WHAT, "queues are out of order")?;
        from = id.saturating_add(1);
        let count = reader.count(8, WHAT)?;
        let queue = machine.queues.get_mut(id as usize);
        let (window, keys) = queue
            .and_then(|queue| Some((queue.windows[KEYED].as_deref()?, &mut queue.keys)))
            .ok_or(DecodeError::Invalid {
                what: WHAT,
                why: "the queue has no messages with one",
            })?;
        // Before any is read: a window may claim to have more messages than there can be.
        check_count(window, count as u64)?;
        for seq in window.open_parts(0..u64::MAX).flatten() {
            keys.push(seq, KeyHash(reader.u64(WHAT)?));
        }
    }
    Ok(())
}

fn check_count(window: &Window, count: u64) -> Result<(), DecodeError> {
    let all = count == window.open_count();
    check(
        all,
        "ordering keys",
        "there is not one for each message that is not done",
    )
}

/// That no message of a machine that was read lacks its key.
pub(crate) fn check_all(machine: &Machine) -> Result<(), DecodeError> {
    queues(machine).try_for_each(|(_, queue, window)| check_count(window, queue.keys.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(seq: u64) -> KeyHash {
        KeyHash(seq * 3)
    }

    #[test]
    fn each_message_has_its_key_until_it_is_done() {
        let mut keys = Keys::default();
        (1..1_000).for_each(|seq| keys.push(seq, hash(seq)));
        keys.finish(&(1..300));
        keys.finish(&(310..320));
        assert!((300..310).chain(320..1_000).all(|seq| keys.get(seq) == hash(seq)));
        assert_eq!(keys.len(), 690);
    }

    #[test]
    fn a_copy_stays_as_it_was() {
        let mut keys = Keys::default();
        (1..1_000).for_each(|seq| keys.push(seq, hash(seq)));
        let copy = keys.clone();
        keys.finish(&(1..500));
        keys.push(1_000, hash(1_000));
        assert_eq!((copy.len(), keys.len()), (999, 501));
        assert!((1..1_000).all(|seq| copy.get(seq) == hash(seq)));
        let shared = |(number, chunk)| copy.chunks.get(number).is_some_and(|other| Arc::ptr_eq(chunk, other));
        // 1,000 is in the last of them, 500 in the first.
        assert_eq!(
            (keys.chunks.len(), keys.chunks.iter().filter(|one| shared(*one)).count()),
            (5, 3)
        );
    }

    #[test]
    fn chunks_go_with_the_last_of_their_messages() {
        let mut keys = Keys::default();
        (1..=640).for_each(|seq| keys.push(seq, hash(seq)));
        keys.finish(&(1..300));
        keys.finish(&(301..641));
        assert_eq!(keys.chunks.len(), 1);
        // In the middle of a chunk that was gone before.
        keys.push(641, hash(641));
        keys.finish(&(300..301));
        keys.push(642, hash(642));
        assert_eq!(
            (keys.chunks.len(), keys.get(641), keys.get(642)),
            (1, hash(641), hash(642))
        );
        keys.finish(&(641..643));
        assert!(keys.chunks.is_empty());
        keys.push(643, hash(643));
        assert_eq!(keys.get(643), hash(643));
    }
}
