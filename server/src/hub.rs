//! Who listens to topics on this node.
//!
//! Every node tells its own listeners what it applies, so a subscriber on any replica gets every message. Listeners are not
//! replicated: they end with their connection.
//!
//! A listener is known by topic and id. The same again replaces the earlier one, which is told that it has ended; when a
//! listener goes, it takes itself out, never one that has come after it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use boltq_core::{Record, RecordHead};
use boltq_queue::Effect;
use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Payloads and headers that may wait for one listener, in bytes. They are shared by all listeners that wait for them.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// See the module.
#[derive(Debug, Default)]
pub struct Hub {
    topics: RwLock<BTreeMap<String, Vec<Arc<Listener>>>>,
    /// Of all topics. So that a node on which nobody listens does no more than look at it.
    listeners: AtomicUsize,
    /// Messages that listeners were told.
    pub told: AtomicU64,
    /// Messages that did not fit into the buffer of a listener.
    pub dropped: AtomicU64,
}

/// Who listens to a topic.
#[derive(Debug)]
struct Listener {
    /// `None` can be replaced by nobody.
    id: Option<String>,
    /// `None`: it gets its messages from its backlog.
    live: Option<Live>,
    /// It is to go.
    ended: CancellationToken,
    /// It has gone, and holds nothing any more.
    gone: CancellationToken,
}

#[derive(Debug)]
struct Live {
    messages: mpsc::Sender<Record>,
    bytes: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

/// A place among the listeners, until it is dropped.
#[derive(Debug)]
pub struct Listening {
    hub: Arc<Hub>,
    topic: String,
    listener: Arc<Listener>,
}

/// What a listener has not taken yet.
#[derive(Debug)]
pub struct Inbox {
    messages: mpsc::Receiver<Record>,
    /// Taken out, and too large for the batch before.
    held: Option<Record>,
    bytes: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

impl Listening {
    /// Returns when somebody else has taken this place, or it was closed.
    pub async fn ended(&self) {
        self.listener.ended.cancelled().await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.hub.remove(&self.topic, &self.listener);
        self.listener.gone.cancel();
    }
}

impl Inbox {
    /// Waits for messages, and takes `max` at most, that have `bytes_max` together; or one, whatever it has.
    pub async fn next(&mut self, max: usize, bytes_max: usize) -> Vec<Record> {
        let first = match self.held.take() {
            Some(held) => held,
            None => match self.messages.recv().await {
                Some(first) => first,
                // Its listener is gone.
                None => std::future::pending().await,
            },
        };
        let mut bytes = bytes_of(&first);
        let mut taken = vec![first];
        while taken.len() < max
            && let Ok(next) = self.messages.try_recv()
        {
            let more = bytes_of(&next);
            if bytes + more > bytes_max {
                self.held = Some(next);
                break;
            }
            bytes += more;
            taken.push(next);
        }
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        taken
    }

    /// Messages that were dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

fn bytes_of(record: &Record) -> usize {
    let headers: usize = record.headers().map(|(key, value)| key.len() + value.len()).sum();
    record.payload.len() + headers
}

impl Live {
    /// Drops the message if there is no room: the newest, so that what is delivered has no gap before it.
    fn tell(&self, record: &Record, bytes: usize) -> bool {
        let waiting = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // A message that is larger than all room there is may wait alone.
        let fits = waiting == 0 || waiting + bytes <= WAITING_BYTES_MAX;
        let told = fits && self.messages.try_send(record.clone()).is_ok();
        if !told {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        told
    }
}

impl Hub {
    /// Listens to what is published from now on; at most `buffer` messages wait.
    pub fn listen(self: &Arc<Self>, topic: &str, id: Option<&str>, buffer: usize) -> (Listening, Inbox) {
        let (messages, receiver) = mpsc::channel(buffer.max(1));
        let (bytes, dropped) = (Arc::default(), Arc::default());
        let inbox = Inbox {
            messages: receiver,
            held: None,
            bytes: Arc::clone(&bytes),
            dropped: Arc::clone(&dropped),
        };
        let live = Live {
            messages,
            bytes,
            dropped,
        };
        (self.add(topic, id, Some(live)).0, inbox)
    }

    /// Takes the place of a listener that gets its messages from its backlog.
    /// With it comes what is cancelled once the listener before has gone, if there is one.
    pub fn occupy(self: &Arc<Self>, topic: &str, id: &str) -> (Listening, Option<CancellationToken>) {
        self.add(topic, Some(id), None)
    }

    fn add(
        self: &Arc<Self>,
        topic: &str,
        id: Option<&str>,
        live: Option<Live>,
    ) -> (Listening, Option<CancellationToken>) {
        let listener = Arc::new(Listener {
            id: id.map(str::to_owned),
            live,
            ended: CancellationToken::new(),
            gone: CancellationToken::new(),
        });
        let mut topics = self.topics.write();
        let there = topics.entry(topic.to_owned()).or_default();
        let mut before = None;
        if let Some(at) = there.iter().position(|other| id.is_some() && other.id.as_deref() == id) {
            let replaced = std::mem::replace(&mut there[at], Arc::clone(&listener));
            replaced.ended.cancel();
            before = Some(replaced.gone.clone());
        } else {
            there.push(Arc::clone(&listener));
            self.listeners.fetch_add(1, Ordering::Relaxed);
        }
        let listening = Listening {
            hub: Arc::clone(self),
            topic: topic.to_owned(),
            listener,
        };
        (listening, before)
    }

    fn remove(&self, topic: &str, listener: &Arc<Listener>) {
        let mut topics = self.topics.write();
        let Some(there) = topics.get_mut(topic) else { return };
        let Some(at) = there.iter().position(|other| Arc::ptr_eq(other, listener)) else {
            return;
        };
        there.swap_remove(at);
        self.listeners.fetch_sub(1, Ordering::Relaxed);
        if there.is_empty() {
            topics.remove(topic);
        }
    }

    /// Ends whoever has this place.
    pub fn close(&self, topic: &str, id: &str) {
        let topics = self.topics.read();
        let there = topics.get(topic).into_iter().flatten();
        for listener in there.filter(|listener| listener.id.as_deref() == Some(id)) {
            listener.ended.cancel();
        }
    }

    /// Whether somebody has this place.
    #[must_use]
    pub fn is_occupied(&self, topic: &str, id: &str) -> bool {
        let topics = self.topics.read();
        let mut there = topics.get(topic).into_iter().flatten();
        there.any(|listener| listener.id.as_deref() == Some(id) && !listener.ended.is_cancelled())
    }

    /// Topics with the number of their listeners, in the byte order of their names.
    #[must_use]
    pub fn topics(&self) -> Vec<(String, u64)> {
        let topics = self.topics.read();
        let count = |(topic, there): (&String, &Vec<_>)| (topic.clone(), there.len() as u64);
        topics.iter().map(count).collect()
    }

    /// Tells listeners what a command has published, which starts at `offset` of its entry. To be called in the order of the
    /// commands.
    pub fn follow(&self, effects: &[Effect], command: &[u8], offset: u32) {
        if self.listeners.load(Ordering::Relaxed) == 0 {
            return;
        }
        for effect in effects {
            if let Effect::TopicPublished {
                topic,
                topic_bytes,
                records,
                records_bytes,
                ..
            } = *effect
            {
                let part = |at: u32, bytes: u32| {
                    let start = at.checked_sub(offset)? as usize;
                    command.get(start..start + bytes as usize)
                };
                let topic = part(topic, topic_bytes).and_then(|topic| std::str::from_utf8(topic).ok());
                if let (Some(topic), Some(records)) = (topic, part(records, records_bytes)) {
                    self.tell(topic, records);
                }
            }
        }
    }

    fn tell(&self, topic: &str, mut records: &[u8]) {
        let topics = self.topics.read();
        let Some(there) = topics.get(topic) else { return };
        if there.iter().all(|listener| listener.live.is_none()) {
            return;
        }
        // One copy for all of them, so that who is slow does not keep the whole entry in memory.
        while let Ok(head) = RecordHead::read(records) {
            let (first, rest) = records.split_at(head.bytes);
            records = rest;
            if let Ok(record) = Record::read(&Bytes::copy_from_slice(first)) {
                self.tell_one(there, &record);
            }
        }
    }

    fn tell_one(&self, there: &[Arc<Listener>], record: &Record) {
        let bytes = bytes_of(record);
        for live in there.iter().filter_map(|listener| listener.live.as_ref()) {
            let count = if live.tell(record, bytes) {
                &self.told
            } else {
                &self.dropped
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use boltq_core::{Applied, Millis, RecordBuilder, StateMachine};
    use boltq_queue::Machine;
    use boltq_queue::command::PublishWriter;
    use bytes::BytesMut;

    use super::*;

    const OFFSET: u32 = 7;

    fn publish(hub: &Hub, topic: &str, payloads: &[&[u8]]) {
        let mut command = BytesMut::new();
        let writer = PublishWriter::begin_topic(&mut command, topic);
        for payload in payloads {
            let builder = RecordBuilder {
                json: false,
                priority: 0,
                published_ns: 1,
                expires: None,
                due: None,
                ordering_key: "",
                id: None,
                payload,
            };
            builder.write(std::iter::empty(), &mut command);
        }
        writer.finish(&mut command, u32::try_from(payloads.len()).unwrap());
        let mut applied = Applied::default();
        Machine::default()
            .apply(Millis(1), &command, OFFSET, &mut applied)
            .unwrap();
        hub.follow(&applied.effects, &command, OFFSET);
    }

    async fn payloads(inbox: &mut Inbox) -> Vec<Vec<u8>> {
        inbox
            .next(100, usize::MAX)
            .await
            .iter()
            .map(|record| record.payload.to_vec())
            .collect()
    }

    #[tokio::test]
    async fn all_listeners_of_a_topic_get_its_messages_in_order() {
        let hub = Arc::new(Hub::default());
        let (_one, mut first) = hub.listen("t", Some("a"), 10);
        let (_two, mut second) = hub.listen("t", None, 10);
        let (_other, mut other) = hub.listen("u", Some("a"), 10);
        publish(&hub, "t", &[b"1", b"2"]);
        publish(&hub, "u", &[b"3"]);
        for inbox in [&mut first, &mut second] {
            assert_eq!(payloads(inbox).await, [b"1", b"2"]);
        }
        assert_eq!(payloads(&mut other).await, [b"3"]);
    }

    #[tokio::test]
    async fn who_is_slow_loses_the_newest_and_is_told_how_many() {
        let hub = Arc::new(Hub::default());
        let (_slow, mut slow) = hub.listen("t", None, 2);
        let (_fast, mut fast) = hub.listen("t", None, 10);
        publish(&hub, "t", &[b"1", b"2", b"3", b"4"]);
        assert_eq!(payloads(&mut slow).await, [b"1", b"2"]);
        assert_eq!((slow.take_dropped(), slow.take_dropped()), (2, 0));
        assert_eq!(payloads(&mut fast).await.len(), 4);
        assert_eq!(
            (hub.told.load(Ordering::Relaxed), hub.dropped.load(Ordering::Relaxed)),
            (6, 2)
        );
        publish(&hub, "t", &[b"5"]);
        assert_eq!(payloads(&mut slow).await, [b"5"]);
    }

    #[tokio::test]
    async fn large_messages_wait_by_their_bytes() {
        let hub = Arc::new(Hub::default());
        let (_one, mut inbox) = hub.listen("t", None, 100);
        let large = vec![0; WAITING_BYTES_MAX / 2];
        publish(&hub, "t", &[&large, &large, b"x"]);
        assert_eq!((payloads(&mut inbox).await.len(), inbox.take_dropped()), (2, 1));
        publish(&hub, "t", &[&large]);
        assert_eq!(payloads(&mut inbox).await.len(), 1);
    }

    #[tokio::test]
    async fn a_batch_has_no_more_bytes_than_wanted_unless_one_message_has() {
        let hub = Arc::new(Hub::default());
        let (_one, mut inbox) = hub.listen("t", None, 10);
        publish(&hub, "t", &[b"123", b"45", b"6", b"7890123", b"4"]);
        let mut batches = Vec::new();
        for _ in 0..3 {
            batches.push(inbox.next(10, 5).await.len());
        }
        // Two of 3 and 2 bytes; one of 1, as the next is too large; that one alone.
        assert_eq!(batches, [2, 1, 1]);
        assert_eq!(inbox.next(10, 5).await.len(), 1);
    }

    #[tokio::test]
    async fn the_same_again_replaces_the_earlier_one_which_then_takes_nobody_out() {
        let hub = Arc::new(Hub::default());
        let (old, _) = hub.listen("t", Some("a"), 10);
        let (new, mut inbox) = hub.listen("t", Some("a"), 10);
        old.ended().await;
        drop(old);
        publish(&hub, "t", &[b"1"]);
        assert_eq!(payloads(&mut inbox).await, [b"1"]);
        assert_eq!(hub.topics(), [("t".to_owned(), 1)]);
        let (backlog, before) = hub.occupy("t", "a");
        new.ended().await;
        let before = before.unwrap();
        assert!(!before.is_cancelled());
        assert!(hub.is_occupied("t", "a"));
        hub.close("t", "a");
        backlog.ended().await;
        drop((new, backlog));
        before.cancelled().await;
        assert_eq!((hub.topics(), hub.listeners.load(Ordering::Relaxed)), (Vec::new(), 0));
    }
}
