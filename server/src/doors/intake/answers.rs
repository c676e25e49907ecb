//! What answers hold that their clients have not read yet.
//!
//! A client may ask for megabytes on a thousand streams, and read none of it. Unlike requests, answers can wait before they
//! are made: messages stay where they are until there is room for an answer with them. So who wants to make one takes room
//! for the largest, of its stream, its connection and the node, in the order of asking, and gives back at once what it does
//! not need and the rest when the answer has left.
//!
//! Who waits must not wait for ever, because what is awaited might be an attacker's. While somebody waits for room of the
//! node, connections that hold some and have read no answer for `server.idle_write_timeout` are
//! closed. A client that pauses harms nobody, and is left alone, as long as there is room.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Room is counted in these, rounded up.
const UNIT_BYTES: usize = 1 << 10;
/// Of one stream of answers: the largest one, and the next while that is on its way.
const STREAM_BYTES_MAX: usize = 8 << 20;
/// How often who waits looks for connections that do not read, as a part of the time that they may.
const LOOKS: u32 = 4;

/// The room of the node, for all ports.
#[derive(Debug)]
pub(super) struct Answers {
    room: Arc<Semaphore>,
    connection_bytes_max: usize,
    stall: Duration,
    start: Instant,
    readers: Mutex<Slab<Weak<Reader>>>,
}

impl Answers {
    pub(super) fn new(bytes_max: usize, connection_bytes_max: usize, stall: Duration) -> Arc<Self> {
        Arc::new(Self {
            room: semaphore(bytes_max),
            connection_bytes_max,
            stall,
            start: Instant::now(),
            readers: Mutex::default(),
        })
    }

    /// A new connection, which ends when `evicted` is cancelled.
    pub(super) fn reader(self: &Arc<Self>, evicted: CancellationToken) -> Arc<Reader> {
        let mut readers = self.readers.lock();
        let entry = readers.vacant_entry();
        let reader = Arc::new(Reader {
            room: semaphore(self.connection_bytes_max),
            holds: AtomicUsize::new(0),
            progress_ms: AtomicU64::new(0),
            evicted,
            key: entry.key(),
            answers: self.clone(),
        });
        entry.insert(Arc::downgrade(&reader));
        reader
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn evict_stalled(&self) {
        let stall_ms = u64::try_from(self.stall.as_millis()).unwrap_or(u64::MAX);
        let now = self.now_ms();
        for (_, reader) in self.readers.lock().iter() {
            let Some(reader) = reader.upgrade() else { continue };
            let silent = now.saturating_sub(reader.progress_ms.load(Ordering::Relaxed)) >= stall_ms;
            let answers = reader.holds.load(Ordering::Relaxed);
            if silent && answers > 0 && !reader.evicted.is_cancelled() {
                tracing::warn!(
                    answers,
                    "closing a connection whose client does not read its answers, while others wait for room"
                );
                reader.evicted.cancel();
            }
        }
    }
}

/// The client of a connection, who is to read its answers.
#[derive(Debug)]
pub(in crate::doors) struct Reader {
    room: Arc<Semaphore>,
    /// Answers that have all the room that they need.
    holds: AtomicUsize,
    /// When an answer began to wait, or had left.
    progress_ms: AtomicU64,
    evicted: CancellationToken,
    key: usize,
    answers: Arc<Answers>,
}

impl Reader {
    /// Waits until there is room for an answer of so many bytes, on a stream if it is one of several.
    pub(in crate::doors) async fn hold(self: &Arc<Self>, bytes: usize, stream: Option<&StreamRoom>) -> Hold {
        let units = units(bytes);
        let mut rooms = Vec::with_capacity(3);
        if let Some(stream) = stream {
            rooms.extend(stream.0.clone().acquire_many_owned(units).await);
        }
        rooms.extend(self.room.clone().acquire_many_owned(units).await);
        let mut waiting = pin!(self.answers.room.clone().acquire_many_owned(units));
        loop {
            match timeout(self.answers.stall / LOOKS, &mut waiting).await {
                Ok(room) => {
                    rooms.extend(room);
                    break;
                }
                Err(_) => self.answers.evict_stalled(),
            }
        }
        self.progress();
        self.holds.fetch_add(1, Ordering::Relaxed);
        Hold {
            rooms,
            reader: self.clone(),
        }
    }

    fn progress(&self) {
        self.progress_ms.store(self.answers.now_ms(), Ordering::Relaxed);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.answers.readers.lock().try_remove(self.key);
    }
}

/// The room of one stream of answers.
#[derive(Debug)]
pub(in crate::doors) struct StreamRoom(Arc<Semaphore>);

impl StreamRoom {
    /// With nothing in it.
    pub(in crate::doors) fn new() -> Self {
        Self(semaphore(STREAM_BYTES_MAX))
    }
}

/// Room that an answer takes, until this is dropped.
#[derive(Debug)]
pub(in crate::doors) struct Hold {
    /// Of the stream, the connection, the node.
    rooms: Vec<OwnedSemaphorePermit>,
    reader: Arc<Reader>,
}

impl Hold {
    /// The answer has so many bytes; more than was asked for is not counted.
    pub(in crate::doors) fn shrink(&mut self, bytes: usize) {
        let units = units(bytes) as usize;
        for room in &mut self.rooms {
            let unused = room.num_permits().saturating_sub(units);
            drop(room.split(unused));
        }
    }

    /// The same bytes, which hold the room for as long as they are somewhere.
    pub(super) fn attach(self: Arc<Self>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _hold: self })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.reader.holds.fetch_sub(1, Ordering::Relaxed);
        self.reader.progress();
    }
}

struct Held {
    bytes: Bytes,
    _hold: Arc<Hold>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn semaphore(bytes_max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(units(bytes_max) as usize))
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const MIB: usize = 1 << 20;
    const NEVER: Duration = Duration::from_secs(3_600);

    fn answers(stall: Duration) -> Arc<Answers> {
        Answers::new(16 * MIB, 10 * MIB, stall)
    }

    fn left(answers: &Answers) -> usize {
        answers.room.available_permits() * UNIT_BYTES
    }

    #[tokio::test]
    async fn answers_wait_for_room_of_their_stream_their_connection_and_the_node() {
        let answers = answers(NEVER);
        let [one, two] = [(); 2].map(|()| answers.reader(CancellationToken::new()));
        let stream = StreamRoom::new();
        let mut first = one.hold(5 * MIB, Some(&stream)).await;
        assert!(one.hold(5 * MIB, Some(&stream)).now_or_never().is_none(), "the stream");
        let second = one.hold(5 * MIB, None).await;
        assert!(one.hold(1, None).now_or_never().is_none(), "the connection");
        let third = two.hold(6 * MIB, None).await;
        assert!(two.hold(1, None).now_or_never().is_none(), "the node");
        first.shrink(MIB);
        assert_eq!(left(&answers), 4 * MIB);
        let fourth = one.hold(4 * MIB, Some(&stream)).await;
        drop((first, second, third, fourth));
        assert_eq!(left(&answers), 16 * MIB);
        drop((one, two));
        assert!(answers.readers.lock().is_empty());
    }

    #[tokio::test]
    async fn room_is_held_until_the_bytes_are_gone() {
        let answers = answers(NEVER);
        let reader = answers.reader(CancellationToken::new());
        let hold = Arc::new(reader.hold(MIB, None).await);
        let bytes = hold.attach(Bytes::from_static(b"answer"));
        let part = bytes.slice(2..);
        drop(bytes);
        assert_eq!((&part[..], left(&answers)), (&b"swer"[..], 15 * MIB));
        drop(part);
        assert_eq!(left(&answers), 16 * MIB);
    }

    #[tokio::test]
    async fn who_does_not_read_is_closed_when_somebody_else_waits_and_not_before() {
        let stall = Duration::from_millis(40);
        let answers = answers(stall);
        let tokens = [(); 3].map(|()| CancellationToken::new());
        let [idle, silent, other] = tokens.each_ref().map(|token| answers.reader(token.clone()));
        let held = silent.hold(10 * MIB, None).await;
        // It waits for itself, and harms nobody.
        assert!(timeout(4 * stall, silent.hold(1, None)).await.is_err());
        assert!(tokens.iter().all(|token| !token.is_cancelled()));
        let mut waiting = pin!(other.hold(7 * MIB, None));
        tokio::select! {
            _ = &mut waiting => panic!("there is no room"),
            () = tokens[1].cancelled() => drop(held),
        }
        waiting.await;
        assert!(!tokens[0].is_cancelled() && !tokens[2].is_cancelled());
        drop(idle);
    }
}
