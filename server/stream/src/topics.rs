//! The catalogue: topics by name.
//!
//! Names are in a tree, and what topics are in a place of its own: nodes of a tree that hold whole topics would be half empty. So a
//! topic with one partition takes 72 bytes, its name, and 20 bytes in the tree, some 45 with what is empty there.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Bound;
use std::sync::Arc;

use crate::partition::Partition;
use crate::settings::{Settings, Shared, Terms, Version};

/// Topics that are allocated together.
const CHUNK: usize = 1_024;

/// The partitions of a topic that are in this group: at least one.
#[derive(Debug)]
pub(crate) enum Partitions {
    One(Partition),
    Many(BTreeMap<u32, Partition>),
}

impl Partitions {
    pub(crate) fn get(&self, number: u32) -> Option<&Partition> {
        match self {
            Self::One(one) => (one.number == number).then_some(one),
            Self::Many(many) => many.get(&number),
        }
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Partition> {
        match self {
            Self::One(one) => (one.number == number).then_some(one),
            Self::Many(many) => many.get_mut(&number),
        }
    }

    /// Adds one that is not there yet.
    pub(crate) fn insert(&mut self, new: Partition) {
        let number = new.number;
        if let Self::Many(many) = self {
            many.insert(number, new);
            return;
        }
        if let Self::One(one) = std::mem::replace(self, Self::Many(BTreeMap::new()))
            && let Self::Many(many) = self
        {
            many.extend([(one.number, one), (number, new)]);
        }
    }

    /// In the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Partition> {
        let (one, many) = match self {
            Self::One(one) => (Some(one), None),
            Self::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flat_map(|many| many.values()))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        let (one, many) = match self {
            Self::One(one) => (Some(one), None),
            Self::Many(many) => (None, Some(many)),
        };
        one.into_iter()
            .chain(many.into_iter().flat_map(|many| many.values_mut()))
    }
}

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) created: Version,
    pub(crate) changed: Version,
    pub(crate) settings: Arc<Settings>,
    pub(crate) partitions: Partitions,
}

const _: () = assert!(size_of::<Option<Topic>>() == 72);

impl Topic {
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            created: self.created,
            changed: self.changed,
            settings: *self.settings,
        }
    }
}

/// Topics by a number that is given again when its topic is gone. It is no part of the state that replicas have in common.
#[derive(Debug, Default)]
struct Slots {
    chunks: Vec<Vec<Option<Topic>>>,
    free: Vec<u32>,
}

impl Slots {
    fn get(&self, slot: u32) -> Option<&Topic> {
        let slot = slot as usize;
        self.chunks.get(slot / CHUNK)?.get(slot % CHUNK)?.as_ref()
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut Topic> {
        let slot = slot as usize;
        self.chunks.get_mut(slot / CHUNK)?.get_mut(slot % CHUNK)?.as_mut()
    }

    fn insert(&mut self, topic: Topic) -> u32 {
        if let Some(slot) = self.free.pop() {
            let at = slot as usize;
            if let Some(place) = self
                .chunks
                .get_mut(at / CHUNK)
                .and_then(|chunk| chunk.get_mut(at % CHUNK))
            {
                *place = Some(topic);
            }
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let full = (self.chunks.len() - 1) * CHUNK;
        let last = self.chunks.last_mut().map_or(0, |chunk| {
            chunk.push(Some(topic));
            chunk.len() - 1
        });
        // Memory ends before the numbers do.
        u32::try_from(full + last).unwrap_or(u32::MAX)
    }

    fn remove(&mut self, slot: u32) -> Option<Topic> {
        let at = slot as usize;
        let topic = self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)?.take()?;
        self.free.push(slot);
        Some(topic)
    }
}

/// All topics of a group.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    names: BTreeMap<Box<str>, u32>,
    slots: Slots,
    pub(crate) settings: Shared,
    pub(crate) last_version: Version,
    /// Streams are numbered from 1 on, and never again.
    pub(crate) last_stream: u64,
}

impl Topics {
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Topic> {
        self.slots.get(*self.names.get(name)?)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Topic> {
        self.slots.get_mut(*self.names.get(name)?)
    }

    /// Those whose names are behind this one, in the byte order of their names.
    pub(crate) fn after(&self, name: Option<&str>) -> impl Iterator<Item = (&str, &Topic)> {
        let after = name.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.names.range::<str, _>((after, Bound::Unbounded));
        behind.filter_map(|(name, slot)| Some((&**name, self.slots.get(*slot)?)))
    }

    /// Adds a topic of which there is none of the name.
    pub(crate) fn insert(&mut self, name: &str, terms: &Terms, partitions: Partitions) {
        let settings = self.settings.get(terms.settings);
        let slot = self.slots.insert(Topic {
            created: terms.created,
            changed: terms.changed,
            settings,
            partitions,
        });
        self.names.insert(name.into(), slot);
    }

    /// As [`Topics::insert`], with one partition that has nothing.
    pub(crate) fn create(&mut self, name: &str, terms: &Terms, partition: u32) {
        let partitions = Partitions::One(Partition::new(partition, self.next_stream()));
        self.insert(name, terms, partitions);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Topic> {
        let slot = self.names.remove(name)?;
        let topic = self.slots.remove(slot)?;
        self.settings.put_back(&topic.settings);
        Some(topic)
    }

    /// Gives a topic, if it exists, a partition that it does not have here yet.
    pub(crate) fn add_partition(&mut self, name: &str, partition: u32) {
        let stream = self.next_stream();
        if let Some(topic) = self.get_mut(name) {
            topic.partitions.insert(Partition::new(partition, stream));
        }
    }

    pub(crate) fn change(&mut self, name: &str, changed: Version, settings: Settings) {
        let new = self.settings.get(settings);
        let Some(topic) = self.get_mut(name) else { return };
        topic.changed = changed;
        let before = std::mem::replace(&mut topic.settings, new);
        self.settings.put_back(&before);
    }

    fn next_stream(&mut self) -> NonZeroU64 {
        self.last_stream = self.last_stream.saturating_add(1);
        NonZeroU64::new(self.last_stream).unwrap_or(NonZeroU64::MAX)
    }
}
