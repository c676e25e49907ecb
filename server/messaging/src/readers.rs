//! Who waits for records of a partition, woken by each entry that brings some.
//!
//! A reader registers before it looks, and a record can be read before its readers are woken, so none is missed. The table is
//! by the hash of the name: another topic with the same hash wakes a reader for nothing, and that is all.

use std::collections::HashMap;
use std::sync::Arc;

use boltq_core::KeyHash;
use boltq_stream::command::Subject;
use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Readers {
    topics: Mutex<HashMap<u64, Vec<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    partition: u32,
    reader: Arc<Notify>,
}

impl Readers {
    /// Wakes `reader` from now on whenever something happens to the partition, until what is returned is dropped.
    pub(crate) fn register(self: &Arc<Self>, topic: &str, partition: u32, reader: Arc<Notify>) -> Registration {
        let hash = KeyHash::of(topic.as_bytes()).0;
        let waiting = Waiting {
            partition,
            reader: reader.clone(),
        };
        self.topics.lock().entry(hash).or_default().push(waiting);
        Registration {
            readers: self.clone(),
            hash,
            partition,
            reader,
        }
    }

    /// Wakes the readers of what commands were about.
    pub(crate) fn wake(&self, subjects: &[Subject<'_>]) {
        let topics = self.topics.lock();
        if topics.is_empty() {
            return;
        }
        for subject in subjects {
            let Some(waiting) = topics.get(&KeyHash::of(subject.topic.as_bytes()).0) else {
                continue;
            };
            for waiting in waiting {
                if subject.partition.is_none_or(|partition| partition == waiting.partition) {
                    waiting.reader.notify_one();
                }
            }
        }
    }

    /// Wakes everybody: the state is another one.
    pub(crate) fn wake_all(&self) {
        for waiting in self.topics.lock().values().flatten() {
            waiting.reader.notify_one();
        }
    }
}

/// Ends with it.
#[derive(Debug)]
pub(crate) struct Registration {
    readers: Arc<Readers>,
    hash: u64,
    partition: u32,
    reader: Arc<Notify>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut topics = self.readers.topics.lock();
        let Some(waiting) = topics.get_mut(&self.hash) else {
            return;
        };
        let own = |waiting: &Waiting| waiting.partition == self.partition && Arc::ptr_eq(&waiting.reader, &self.reader);
        if let Some(at) = waiting.iter().position(own) {
            waiting.swap_remove(at);
        }
        if waiting.is_empty() {
            topics.remove(&self.hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_is_woken_for_its_partition_and_for_its_topic_until_it_goes() {
        let readers = Arc::new(Readers::default());
        let reader = Arc::new(Notify::new());
        let registration = readers.register("a", 3, reader.clone());
        let woken = |topic, partition| {
            readers.wake(&[Subject { topic, partition }]);
            let woken = futures_util::FutureExt::now_or_never(reader.notified());
            woken.is_some()
        };
        assert!(woken("a", Some(3)) && woken("a", None));
        assert!(!woken("a", Some(2)) && !woken("b", Some(3)));
        drop(registration);
        assert!(readers.topics.lock().is_empty() && !woken("a", Some(3)));
    }
}
