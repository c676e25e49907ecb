//! What one queue has of its own: settings that take the place of those of the server.
//!
//! They are part of the replicated state. What is not set is left to the [`Settings`] of the node that leads.
//!
//! ```text
//! u16 bit n is set if the nth field is there; then the value of each that is, in this order:
//!     0 max_retry          u64        6 max_length_bytes        u64
//!     1 retry_backoff      u64 ms     7 drop_oldest             nothing
//!     2 retry_backoff_max  u64 ms     8 dead_letter_queue       str
//!     3 ack_timeout        u64 ms     9 dedup_ttl               u64 ms
//!     4 default_ttl        u64 ms    10 single_active_consumer  nothing
//!     5 max_length         u64       11 paused                  nothing
//! ```

use std::sync::Arc;

use boltq_core::DecodeError;
use boltq_core::codec::{self, Reader};
use bytes::{BufMut, BytesMut};

use crate::settings::Settings;

/// Settings of one queue. The default is a queue with none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueOptions {
    /// Attempts after the first one.
    pub max_retry: Option<u64>,
    /// Wait after the first failed attempt, in ms.
    pub backoff_first_ms: Option<u64>,
    /// Longest wait, in ms.
    pub backoff_max_ms: Option<u64>,
    /// Length of a lease for which the consumer asks no other, in ms.
    pub ack_timeout_ms: Option<u64>,
    /// Time to live of messages that are published without one, in ms.
    pub default_ttl_ms: Option<u64>,
    /// Messages that are not done at most.
    pub max_length: Option<u64>,
    /// Bytes of their records at most.
    pub max_length_bytes: Option<u64>,
    /// What makes room in a queue that is full: the oldest messages, instead of those that were to come.
    pub drop_oldest: bool,
    /// Where messages go that failed too often.
    pub dead_letter_queue: Option<Arc<str>>,
    /// How long the key of a publish is remembered, in ms.
    pub dedup_ttl_ms: Option<u64>,
    /// Whether one consumer is served at a time.
    pub single_active_consumer: bool,
    /// Whether nothing is delivered.
    pub paused: bool,
}

/// One of the settings of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "they are described as fields of QueueOptions")]
pub enum QueueOption {
    MaxRetry,
    BackoffFirst,
    BackoffMax,
    AckTimeout,
    DefaultTtl,
    MaxLength,
    MaxLengthBytes,
    DropOldest,
    DeadLetterQueue,
    DedupTtl,
    SingleActiveConsumer,
    Paused,
}

/// Where the value of an option is.
enum Value<'o> {
    Number(&'o mut Option<u64>),
    Switch(&'o mut bool),
    Name(&'o mut Option<Arc<str>>),
}

impl QueueOption {
    /// All of them, in the order of their bits.
    pub const ALL: [Self; 12] = [
        Self::MaxRetry,
        Self::BackoffFirst,
        Self::BackoffMax,
        Self::AckTimeout,
        Self::DefaultTtl,
        Self::MaxLength,
        Self::MaxLengthBytes,
        Self::DropOldest,
        Self::DeadLetterQueue,
        Self::DedupTtl,
        Self::SingleActiveConsumer,
        Self::Paused,
    ];

    fn bit(self) -> u16 {
        1 << self as u16
    }

    fn of(self, options: &mut QueueOptions) -> Value<'_> {
        match self {
            Self::MaxRetry => Value::Number(&mut options.max_retry),
            Self::BackoffFirst => Value::Number(&mut options.backoff_first_ms),
            Self::BackoffMax => Value::Number(&mut options.backoff_max_ms),
            Self::AckTimeout => Value::Number(&mut options.ack_timeout_ms),
            Self::DefaultTtl => Value::Number(&mut options.default_ttl_ms),
            Self::MaxLength => Value::Number(&mut options.max_length),
            Self::MaxLengthBytes => Value::Number(&mut options.max_length_bytes),
            Self::DropOldest => Value::Switch(&mut options.drop_oldest),
            Self::DeadLetterQueue => Value::Name(&mut options.dead_letter_queue),
            Self::DedupTtl => Value::Number(&mut options.dedup_ttl_ms),
            Self::SingleActiveConsumer => Value::Switch(&mut options.single_active_consumer),
            Self::Paused => Value::Switch(&mut options.paused),
        }
    }
}

/// Some of the settings of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueOptionSet(u16);

impl QueueOptionSet {
    /// All settings.
    pub const ALL: Self = Self((1 << QueueOption::ALL.len()) - 1);

    /// Adds one.
    pub fn insert(&mut self, option: QueueOption) {
        self.0 |= option.bit();
    }

    /// Whether it is one of them.
    #[must_use]
    pub fn contains(self, option: QueueOption) -> bool {
        self.0 & option.bit() != 0
    }

    fn iter(self) -> impl Iterator<Item = QueueOption> {
        QueueOption::ALL
            .into_iter()
            .filter(move |option| self.contains(*option))
    }

    pub(crate) fn put(self, out: &mut BytesMut) {
        out.put_u16_le(self.0);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bits = reader.u16("settings of a queue")?;
        if bits & !Self::ALL.0 == 0 {
            return Ok(Self(bits));
        }
        Err(DecodeError::Unknown {
            what: "settings of a queue",
            value: u64::from(bits),
        })
    }
}

impl QueueOptions {
    /// These settings with some of others in their places.
    #[must_use]
    pub fn with(mut self, which: QueueOptionSet, mut others: Self) -> Self {
        for option in which.iter() {
            match (option.of(&mut self), option.of(&mut others)) {
                (Value::Number(to), Value::Number(from)) => *to = *from,
                (Value::Switch(to), Value::Switch(from)) => *to = *from,
                (Value::Name(to), Value::Name(from)) => *to = from.take(),
                // An option has one kind of value.
                (Value::Number(_) | Value::Switch(_) | Value::Name(_), _) => {}
            }
        }
        self
    }

    /// Those that are set.
    #[must_use]
    pub fn set(&self) -> QueueOptionSet {
        let mut these = self.clone();
        let mut set = QueueOptionSet::default();
        for option in QueueOption::ALL {
            let there = match option.of(&mut these) {
                Value::Number(number) => number.is_some(),
                Value::Switch(on) => *on,
                Value::Name(name) => name.is_some(),
            };
            if there {
                set.insert(option);
            }
        }
        set
    }

    pub(crate) fn put(&self, out: &mut BytesMut) {
        let mut these = self.clone();
        let set = self.set();
        set.put(out);
        for option in set.iter() {
            match option.of(&mut these) {
                Value::Number(number) => out.put_u64_le(number.unwrap_or_default()),
                Value::Switch(_) => {}
                Value::Name(name) => codec::put_bytes(out, name.as_deref().unwrap_or_default().as_bytes()),
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut read = Self::default();
        for option in QueueOptionSet::read(reader)?.iter() {
            match option.of(&mut read) {
                Value::Number(number) => *number = Some(reader.u64("setting of a queue")?),
                Value::Switch(on) => *on = true,
                Value::Name(name) => *name = Some(reader.str("dead-letter queue")?.into()),
            }
        }
        Ok(read)
    }
}

impl Settings {
    /// What applies to a queue: its own settings, and these for what it has none of.
    #[must_use]
    pub fn of(mut self, options: Option<&QueueOptions>) -> Self {
        let Some(options) = options else { return self };
        if let Some(retries) = options.max_retry {
            self.max_retry = u32::try_from(retries).unwrap_or(u32::MAX);
        }
        self.backoff_first_ms = options.backoff_first_ms.unwrap_or(self.backoff_first_ms);
        self.backoff_max_ms = options.backoff_max_ms.unwrap_or(self.backoff_max_ms);
        self.ack_timeout_ms = options.ack_timeout_ms.unwrap_or(self.ack_timeout_ms);
        self.dedup_ttl_ms = options.dedup_ttl_ms.unwrap_or(self.dedup_ttl_ms);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every option, each with a value that no other has.
    fn all() -> QueueOptions {
        QueueOptions {
            max_retry: Some(0),
            backoff_first_ms: Some(2),
            backoff_max_ms: Some(3),
            ack_timeout_ms: Some(4),
            default_ttl_ms: Some(5),
            max_length: Some(6),
            max_length_bytes: Some(7),
            drop_oldest: true,
            dead_letter_queue: Some("dead".into()),
            dedup_ttl_ms: Some(9),
            single_active_consumer: true,
            paused: true,
        }
    }

    fn written(options: &QueueOptions) -> BytesMut {
        let mut out = BytesMut::new();
        options.put(&mut out);
        out
    }

    #[test]
    fn each_option_is_read_as_it_was_written_alone_and_with_all_others() {
        assert_eq!(all().set(), QueueOptionSet::ALL);
        for option in QueueOption::ALL {
            let mut only = QueueOptionSet::default();
            only.insert(option);
            let one = QueueOptions::default().with(only, all());
            assert_eq!(one.set(), only, "{option:?}");
            let others = all().with(only, QueueOptions::default());
            assert!(!others.set().contains(option));
            assert_eq!(others.clone().with(only, all()), all());
            for options in [one, others, all(), QueueOptions::default()] {
                let bytes = written(&options);
                let mut reader = Reader::new(&bytes);
                assert_eq!(QueueOptions::read(&mut reader).unwrap(), options);
                assert!(reader.is_empty());
            }
        }
    }

    #[test]
    fn options_that_are_cut_off_or_unknown_are_refused() {
        let bytes = written(&all());
        for end in 0..bytes.len() {
            assert!(QueueOptions::read(&mut Reader::new(&bytes[..end])).is_err(), "{end}");
        }
        assert!(QueueOptions::read(&mut Reader::new(&[0, 0x10])).is_err());
    }

    #[test]
    fn what_is_not_set_is_left_to_the_server() {
        let server = Settings {
            max_retry: 5,
            backoff_first_ms: 100,
            backoff_max_ms: 30_000,
            ack_timeout_ms: 30_000,
            dedup_ttl_ms: 600_000,
            dedup_keys_max: 100,
        };
        assert_eq!(server.of(None), server);
        assert_eq!(server.of(Some(&QueueOptions::default())), server);
        let own = server.of(Some(&all()));
        assert!(own.exhausted(1) && !server.exhausted(1));
        assert_eq!((own.backoff_first_ms, own.backoff_max_ms), (2, 3));
        assert_eq!((own.ack_timeout_ms, own.dedup_ttl_ms, own.dedup_keys_max), (4, 9, 100));
    }
}
