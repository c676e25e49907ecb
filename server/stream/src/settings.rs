//! What a topic is told when it is created or changed, and when that was.

use std::collections::BTreeSet;
use std::sync::Arc;

use boltq_core::codec::Reader;
use boltq_core::{DecodeError, Millis};
use bytes::{BufMut, BytesMut};

use crate::format::check;

/// Most partitions of a topic.
pub const PARTITIONS_MAX: u32 = 65_536;
/// Bits of a version that count what happens in one millisecond.
const COUNT_BITS: u32 = 20;

/// When a topic was created or changed, and what tells that from everything else that ever happened to topics of its home: Unix
/// milliseconds in the upper 44 bits, a count in the other 20. Versions of a group only rise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// Not one of any topic.
    pub const NONE: Self = Self(0);
    /// Of those that are read. No group gets there, and what goes on from it does not get over the end.
    pub(crate) const MAX: Self = Self(1 << 62);

    /// When it was.
    #[must_use]
    pub fn time(self) -> Millis {
        Millis(self.0 >> COUNT_BITS)
    }

    /// The next one after `self`.
    pub(crate) fn next(self, now: Millis) -> Self {
        let millis = now.0.min((Self::MAX.0 >> COUNT_BITS) - 1);
        Self((millis << COUNT_BITS).max(self.0.saturating_add(1)))
    }
}

/// How long records are kept. Partitions are apart from each other in this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Retention {
    /// Milliseconds after its timestamp that a record goes at the earliest; 0: never.
    pub max_age_ms: u64,
    /// Bytes of the records of a partition above which the oldest go; 0: any number.
    pub max_bytes: u64,
}

/// What a topic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Settings {
    /// Number of partitions, 1 to [`PARTITIONS_MAX`]. It never changes.
    pub partitions: u32,
    /// How long records are kept.
    pub retention: Retention,
}

impl Settings {
    /// Of its format.
    pub(crate) const BYTES: usize = 20;

    pub(crate) fn write(&self, out: &mut BytesMut) {
        out.put_u32_le(self.partitions);
        out.put_u64_le(self.retention.max_age_ms);
        out.put_u64_le(self.retention.max_bytes);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let partitions = reader.u32("partitions of a topic")?;
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            return Err(DecodeError::Invalid {
                what: "partitions of a topic",
                why: "there are none, or too many",
            });
        }
        Ok(Self {
            partitions,
            retention: read_retention(reader)?,
        })
    }
}

pub(crate) fn read_retention(reader: &mut Reader<'_>) -> Result<Retention, DecodeError> {
    Ok(Retention {
        max_age_ms: reader.u64("age of records")?,
        max_bytes: reader.u64("bytes of a partition")?,
    })
}

pub(crate) fn read_version(reader: &mut Reader<'_>) -> Result<Version, DecodeError> {
    let version = Version(reader.u64("version of a topic")?);
    check(
        version <= Version::MAX,
        "version of a topic",
        "it is higher than any can be",
    )?;
    Ok(version)
}

/// What a topic is, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Of its creation: what tells it from an earlier or later topic of its name. [`Version::NONE`] in a command: as its home has it.
    pub created: Version,
    /// Of its last change; that of its creation if there was none.
    pub changed: Version,
    /// What it is.
    pub settings: Settings,
}

impl Terms {
    /// For commands to the home of a topic: it keeps its terms, and has these settings only if it is created.
    #[must_use]
    pub fn at_home(settings: Settings) -> Self {
        Self {
            created: Version::NONE,
            changed: Version::NONE,
            settings,
        }
    }

    pub(crate) fn write(&self, out: &mut BytesMut) {
        out.put_u64_le(self.created.0);
        out.put_u64_le(self.changed.0);
        self.settings.write(out);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let terms = Self {
            created: read_version(reader)?,
            changed: read_version(reader)?,
            settings: Settings::read(reader)?,
        };
        check(
            terms.created <= terms.changed,
            "terms of a topic",
            "it was changed before it was created",
        )?;
        Ok(terms)
    }
}

/// One of each of the settings that topics have: most of a million topics have the same.
#[derive(Debug, Default)]
pub(crate) struct Shared(BTreeSet<Arc<Settings>>);

impl Shared {
    pub(crate) fn get(&mut self, settings: Settings) -> Arc<Settings> {
        if let Some(there) = self.0.get(&settings) {
            return Arc::clone(there);
        }
        let new = Arc::new(settings);
        self.0.insert(Arc::clone(&new));
        new
    }

    /// Takes back what a topic had.
    pub(crate) fn put_back(&mut self, settings: &Arc<Settings>) {
        // One is here, the other one was just given.
        if Arc::strong_count(settings) == 2 {
            self.0.remove(settings);
        }
    }

    /// In their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Settings> {
        self.0.iter().map(|settings| &**settings)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_rise_and_tell_the_time() {
        let first = Version::NONE.next(Millis(1_767_225_600_000));
        assert_eq!(first.time(), Millis(1_767_225_600_000));
        let second = first.next(Millis(1_767_225_600_000));
        assert!(second > first && second.time() == first.time());
        assert!(second.next(Millis(5)) > second);
        assert_eq!(second.next(Millis(1_767_225_600_001)).time(), Millis(1_767_225_600_001));
        let last = Version::NONE.next(Millis::MAX);
        assert!(last < Version::MAX && last.next(Millis::MAX) > last);
    }

    #[test]
    fn settings_are_there_once_as_long_as_a_topic_has_them() {
        let settings = |partitions| Settings {
            partitions,
            retention: Retention::default(),
        };
        let mut shared = Shared::default();
        let (one, two, other) = (
            shared.get(settings(1)),
            shared.get(settings(1)),
            shared.get(settings(2)),
        );
        assert!(Arc::ptr_eq(&one, &two) && shared.len() == 2);
        shared.put_back(&one);
        assert_eq!(shared.len(), 2);
        drop(one);
        shared.put_back(&two);
        shared.put_back(&other);
        assert_eq!(shared.len(), 0);
    }
}
