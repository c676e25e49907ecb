//! The state and its rules.

use std::ops::Bound;
use std::sync::Arc;

use boltq_core::{Applied, DecodeError, Millis, StateMachine};
use bytes::{Bytes, BytesMut};

use crate::command::{Command, Condition, TimeToLive};
use crate::entries::{Entries, Entry};
use crate::pattern::Pattern;
use crate::snapshot::{self, Captured};

/// Characters of a value that an error shows.
const SHOWN_CHARS: usize = 64;

/// Why a value cannot be counted with. It stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IncrementError {
    /// It is no whole number of 64 bits. Shows its start.
    #[error("value is not an integer: {0}")]
    NotAnInteger(String),
    /// The sum has no room in 64 bits.
    #[error("increment of {value} by {by} would overflow; the value stays")]
    Overflow {
        /// What it is.
        value: i64,
        /// What was to be added.
        by: i64,
    },
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was set, and has this version.
    Set(u64),
    /// The condition was not met; the version that there is.
    Refused(Option<u64>),
    /// Whether there was a value.
    Deleted(bool),
    /// Whether there is a value whose end could be changed.
    Expires(bool),
    /// The sum and its version, or why there is none.
    Incremented(Result<(i64, u64), IncrementError>),
    /// So many keys were removed.
    Removed(u64),
    /// It is known that keys were read.
    Touched,
}

/// What happened to a key, for those who watch it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It has a value of this version. The value is where it was put, unless something newer is there by now.
    Put {
        /// The key.
        key: Arc<str>,
        /// Of the value.
        version: u64,
    },
    /// It has none any more: it was deleted, its time was over, or its place was needed.
    Removed {
        /// The key.
        key: Arc<str>,
        /// The version that it would have had.
        version: u64,
    },
    /// No key has a value any more.
    Flushed {
        /// Higher than that of any value before.
        version: u64,
    },
}

/// Counts since the first start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Keys that were set or incremented.
    pub sets: u64,
    /// Keys that were deleted one by one.
    pub deletes: u64,
    /// Keys whose time was over.
    pub expired: u64,
    /// Keys whose place was needed.
    pub evicted: u64,
}

/// The cache.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    pub(crate) entries: Entries,
    pub(crate) now: Millis,
    /// The version of the last change.
    pub(crate) version: u64,
    pub(crate) totals: Totals,
}

type Changes = Vec<Change>;

impl Cache {
    /// A time for reads, by a clock. No clock is behind what was written: what was over then does not come back.
    #[must_use]
    pub fn at(&self, now: Millis) -> Millis {
        now.max(self.now)
    }

    /// The state of this moment, quickly: it writes what [`StateMachine::snapshot`] returns, whatever becomes of the cache.
    #[must_use]
    pub fn capture(&self) -> Captured {
        Captured::new(self)
    }

    /// The value of a key at a time, if it has one.
    #[must_use]
    pub fn get(&self, key: &str, now: Millis) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.is_alive(self.at(now)))
    }

    /// Keys that a pattern names at a time, in their order, from after `after` on.
    pub fn list<'a>(
        &'a self,
        pattern: Pattern<'a>,
        after: Option<&'a str>,
        now: Millis,
    ) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        let (range, now) = (self.range(pattern, after), self.at(now));
        range.filter(move |(key, entry)| pattern.matches(key) && entry.is_alive(now))
    }

    /// The keys among which those are that a pattern names, from after `after` on, whether they match and live or not: for
    /// those who want to look at a few at a time.
    pub fn range<'a>(
        &'a self,
        pattern: Pattern<'a>,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        let first = match after.filter(|after| *after >= pattern.first()) {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(pattern.first()),
        };
        self.entries
            .from(first)
            .take_while(move |(key, _)| !pattern.is_past(key))
            .map(|(key, entry)| (&**key, entry))
    }

    /// How many keys have a value at a time.
    #[must_use]
    pub fn len(&self, now: Millis) -> usize {
        self.entries.len() - self.entries.expired(self.at(now))
    }

    /// Whether no key has a value at a time.
    #[must_use]
    pub fn is_empty(&self, now: Millis) -> bool {
        self.len(now) == 0
    }

    /// Whether there is something for [`crate::command::sweep`] to remove.
    #[must_use]
    pub fn has_expired(&self, now: Millis) -> bool {
        self.entries.first_expired(self.at(now)).is_some()
    }

    /// Bytes of keys and values, with those that are over and not removed yet.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entries.bytes()
    }

    /// Counts since the first start.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The version of the last change; 0 before the first.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn expires(&self, live: TimeToLive) -> Option<Millis> {
        match live {
            TimeToLive::Unlimited => None,
            TimeToLive::Millis(millis) => Some(self.now.plus(millis.get())),
        }
    }

    /// Removes a key that is over, so that what comes next finds it absent.
    fn end_expired(&mut self, key: &str, changes: &mut Changes) {
        if self.entries.get(key).is_some_and(|entry| !entry.is_alive(self.now)) {
            self.totals.expired += 1;
            self.remove(key, changes);
        }
    }

    fn remove(&mut self, key: &str, changes: &mut Changes) -> bool {
        let Some(key) = self.entries.remove(key) else {
            return false;
        };
        let version = self.next_version();
        changes.push(Change::Removed { key, version });
        true
    }

    fn put(&mut self, key: &str, entry: Entry, keys_max: u64, changes: &mut Changes) -> u64 {
        self.totals.sets += 1;
        let version = self.next_version();
        let key = self.entries.put(key, Entry { version, ..entry });
        changes.push(Change::Put { key, version });
        self.make_room(keys_max, changes);
        version
    }

    /// Down to `keys_max`: those that are over, then those that were used longest ago. Never the last that was used, which
    /// is the one that was just put there.
    fn make_room(&mut self, keys_max: u64, changes: &mut Changes) {
        while keys_max > 0 && self.entries.len() as u64 > keys_max {
            if let Some(over) = self.entries.first_expired(self.now) {
                self.end_expired(&over, changes);
            } else if let Some(unused) = self.entries.first_used() {
                self.totals.evicted += 1;
                self.remove(&unused, changes);
            }
        }
    }

    fn refuses(&self, key: &str, condition: Condition) -> Option<Outcome> {
        let version = self.entries.get(key).map(|entry| entry.version);
        let met = match condition {
            Condition::Any => true,
            Condition::Absent => version.is_none(),
            Condition::Present => version.is_some(),
            Condition::Version(wanted) => version == Some(wanted),
        };
        (!met).then_some(Outcome::Refused(version))
    }

    fn set(
        &mut self,
        key: &str,
        value: &[u8],
        live: TimeToLive,
        condition: Condition,
        keys_max: u64,
        changes: &mut Changes,
    ) -> Outcome {
        self.end_expired(key, changes);
        if let Some(refused) = self.refuses(key, condition) {
            return refused;
        }
        let entry = Entry {
            // Not a slice of the entry, which would keep all of that in memory.
            value: Bytes::copy_from_slice(value),
            expires: self.expires(live),
            created: self.now,
            version: 0,
        };
        Outcome::Set(self.put(key, entry, keys_max, changes))
    }

    fn delete(&mut self, key: &str, condition: Condition, changes: &mut Changes) -> Outcome {
        self.end_expired(key, changes);
        if let Some(refused) = self.refuses(key, condition) {
            return refused;
        }
        let deleted = self.remove(key, changes);
        self.totals.deletes += u64::from(deleted);
        Outcome::Deleted(deleted)
    }

    fn expire(&mut self, key: &str, live: TimeToLive, changes: &mut Changes) -> Outcome {
        self.end_expired(key, changes);
        let Some(entry) = self.entries.get(key) else {
            return Outcome::Expires(false);
        };
        let entry = Entry {
            expires: self.expires(live),
            ..entry.clone()
        };
        // As put, but it is no set, and makes nothing more.
        let version = self.next_version();
        let key = self.entries.put(key, Entry { version, ..entry });
        changes.push(Change::Put { key, version });
        Outcome::Expires(true)
    }

    fn increment(&mut self, key: &str, by: i64, live: TimeToLive, keys_max: u64, changes: &mut Changes) -> Outcome {
        self.end_expired(key, changes);
        let there = self.entries.get(key);
        let value = match there.map(|entry| whole_number(&entry.value)).transpose() {
            Ok(value) => value.unwrap_or(0),
            Err(error) => return Outcome::Incremented(Err(error)),
        };
        let Some(sum) = value.checked_add(by) else {
            return Outcome::Incremented(Err(IncrementError::Overflow { value, by }));
        };
        let entry = Entry {
            value: sum.to_string().into(),
            expires: there.map_or_else(|| self.expires(live), |entry| entry.expires),
            created: there.map_or(self.now, |entry| entry.created),
            version: 0,
        };
        let version = self.put(key, entry, keys_max, changes);
        Outcome::Incremented(Ok((sum, version)))
    }

    fn flush(&mut self, changes: &mut Changes) -> Outcome {
        let count = self.entries.len() as u64;
        if count > 0 {
            self.entries.clear();
            let version = self.next_version();
            changes.push(Change::Flushed { version });
        }
        Outcome::Removed(count)
    }

    fn sweep(&mut self, keys_max: u32, changes: &mut Changes) -> Outcome {
        let mut count = 0;
        while count < u64::from(keys_max)
            && let Some(key) = self.entries.first_expired(self.now)
        {
            self.end_expired(&key, changes);
            count += 1;
        }
        Outcome::Removed(count)
    }
}

/// Spaces around it are no fault of it.
fn whole_number(value: &[u8]) -> Result<i64, IncrementError> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
        let shown = String::from_utf8_lossy(value).chars().take(SHOWN_CHARS).collect();
        IncrementError::NotAnInteger(shown)
    })
}

impl StateMachine for Cache {
    type Outcome = Outcome;
    type Effect = Change;

    fn apply(
        &mut self,
        time: Millis,
        command: &[u8],
        _offset: u32,
        applied: &mut Applied<Change>,
    ) -> Result<Outcome, DecodeError> {
        let command = Command::read(command)?;
        self.now = self.now.max(time);
        let changes = &mut applied.effects;
        Ok(match command {
            Command::Set {
                key,
                value,
                live,
                condition,
                keys_max,
            } => self.set(key, value, live, condition, keys_max, changes),
            Command::Delete { key, condition } => self.delete(key, condition, changes),
            Command::Expire { key, live } => self.expire(key, live, changes),
            Command::Increment {
                key,
                by,
                live,
                keys_max,
            } => self.increment(key, by, live, keys_max, changes),
            Command::Flush => self.flush(changes),
            Command::Sweep { keys_max } => self.sweep(keys_max, changes),
            Command::Touch(keys) => {
                keys.into_iter().for_each(|key| self.entries.touch(key));
                Outcome::Touched
            }
        })
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        self.capture().write(&mut out);
        out.into()
    }

    fn restore(bytes: &[u8]) -> Result<Self, DecodeError> {
        snapshot::read(bytes)
    }
}
