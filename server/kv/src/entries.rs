//! The values, and in which order they end: by time, and by use.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use boltq_core::Millis;
use bytes::Bytes;

/// A value and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Bytes,
    /// From this instant on there is no value; none: it stays.
    pub expires: Option<Millis>,
    /// When it was set; increments do not change that.
    pub created: Millis,
    /// Another one with each change of the cache, and higher each time.
    pub version: u64,
}

impl Entry {
    /// Whether it is there at that time.
    #[must_use]
    pub fn is_alive(&self, now: Millis) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

#[derive(Debug, Clone)]
struct Slot {
    entry: Entry,
    /// Its place in the order of use.
    used: u64,
}

/// All entries. The three orders always have the same keys: `by_use` all of them, `by_time` those that expire.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries {
    slots: BTreeMap<Arc<str>, Slot>,
    by_time: BTreeSet<(Millis, Arc<str>)>,
    by_use: BTreeMap<u64, Arc<str>>,
    /// Of keys and values.
    bytes: u64,
    uses: u64,
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.slots.get(key).map(|slot| &slot.entry)
    }

    /// From `first` on, in the order of the keys.
    pub(crate) fn from<'a>(&'a self, first: Bound<&'a str>) -> impl Iterator<Item = (&'a Arc<str>, &'a Entry)> {
        let slots = self.slots.range::<str, _>((first, Bound::Unbounded));
        slots.map(|(key, slot)| (key, &slot.entry))
    }

    /// All of them with their places in the order of use. They come in the order of the keys, which is that of memory, and so
    /// fast.
    pub(crate) fn capture(&self) -> Vec<(u64, Arc<str>, Entry)> {
        let slots = self.slots.iter();
        slots
            .map(|(key, slot)| (slot.used, key.clone(), slot.entry.clone()))
            .collect()
    }

    /// Puts an entry there as the one that was used last; returns its key.
    pub(crate) fn put(&mut self, key: &str, entry: Entry) -> Arc<str> {
        let key = self.remove(key).unwrap_or_else(|| Arc::from(key));
        self.uses += 1;
        self.bytes += bytes_of(&key, &entry);
        self.by_use.insert(self.uses, key.clone());
        if let Some(expires) = entry.expires {
            self.by_time.insert((expires, key.clone()));
        }
        let used = self.uses;
        self.slots.insert(key.clone(), Slot { entry, used });
        key
    }

    /// Returns the key if it was there.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<str>> {
        let (key, Slot { entry, used }) = self.slots.remove_entry(key)?;
        self.bytes -= bytes_of(&key, &entry);
        self.by_use.remove(&used);
        if let Some(expires) = entry.expires {
            self.by_time.remove(&(expires, key.clone()));
        }
        Some(key)
    }

    /// The key was used now.
    pub(crate) fn touch(&mut self, key: &str) {
        if let Some(slot) = self.slots.get_mut(key)
            && let Some(key) = self.by_use.remove(&slot.used)
        {
            self.uses += 1;
            slot.used = self.uses;
            self.by_use.insert(slot.used, key);
        }
    }

    /// The key whose time was over first, if that is so at `now`.
    pub(crate) fn first_expired(&self, now: Millis) -> Option<Arc<str>> {
        let (expires, key) = self.by_time.first()?;
        (*expires <= now).then(|| key.clone())
    }

    /// How many are over at `now` and still here.
    pub(crate) fn expired(&self, now: Millis) -> usize {
        self.by_time.iter().take_while(|(expires, _)| *expires <= now).count()
    }

    /// The key that was used longest ago.
    pub(crate) fn first_used(&self) -> Option<Arc<str>> {
        self.by_use.values().next().cloned()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn bytes_of(key: &str, entry: &Entry) -> u64 {
    (key.len() + entry.value.len()) as u64
}
