//! Results and the two ways to print them.
//!
//! Commands build results and know nothing of formats. A result's fields are the JSON contract; its table is for
//! people and may change.

mod amounts;
mod bench;
mod cluster;
mod json;
mod key;
mod kv;
mod layout;
mod overview;
mod plain;
mod routing;
mod scheduled;
mod settings;
mod table;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, BufWriter, Stdout, Write};

use boltq_core::MessageId;
use boltq_proto::queue::v1 as pb;
use bytes::Bytes;
use serde::{Serialize, Serializer};

use crate::args::Format;
use crate::error::CliError;

pub(crate) use bench::{Measured, per_second};
pub(crate) use cluster::{ClusterStatus, Joined, Left, Transferred};
pub(crate) use key::KeyHash;
pub(crate) use kv::{
    KvChange, KvDeleted, KvEntry, KvExists, KvExpires, KvFlushed, KvIncremented, KvKey, KvSet, KvStats,
};
#[cfg(test)]
pub(crate) use overview::tests::overview as tests_overview;
pub(crate) use overview::{Leadership, Overview, Rates, Row};
pub(crate) use plain::{printable, printable_lines};
pub(crate) use routing::{Binding, Changed, Exchange, PublishedTopic, Routed, Rows, Subscription, Topic};
pub(crate) use scheduled::{Rescheduled, ScheduledMessage};
pub(crate) use settings::{DeletedQueue, Settings};

/// A result that can be printed.
pub(crate) trait Show {
    fn table(&self, out: &mut dyn Write) -> io::Result<()>;
    fn json(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// Writes results in one format. Nothing is on stdout for certain before [`Printer::flush`].
#[derive(Debug)]
pub(crate) struct Printer<W: Write = BufWriter<Stdout>> {
    format: Format,
    out: W,
}

impl Printer {
    pub(crate) fn stdout(format: Format) -> Self {
        Self {
            format,
            out: BufWriter::new(io::stdout()),
        }
    }
}

impl<W: Write> Printer<W> {
    pub(crate) fn print(&mut self, result: &impl Show) -> io::Result<()> {
        match self.format {
            Format::Table => result.table(&mut self.out),
            Format::Json => result.json(&mut self.out),
        }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// One message was published.
#[derive(Debug, Serialize)]
pub(crate) struct Published<'a> {
    pub(crate) queue: &'a str,
    pub(crate) message_id: Id,
}

/// One of many was published.
#[derive(Debug, Serialize)]
pub(crate) struct PublishedId {
    pub(crate) message_id: Id,
}

/// A file was published.
#[derive(Debug, Serialize)]
pub(crate) struct BulkPublished<'a> {
    pub(crate) queue: &'a str,
    pub(crate) published: u64,
    pub(crate) refused: u64,
    pub(crate) seconds: f64,
}

/// A message as it was delivered or peeked at.
#[derive(Debug)]
pub(crate) struct Delivered {
    /// What `boltq extend` takes; `None` if nothing was leased.
    pub(crate) delivery_token: Option<Bytes>,
    pub(crate) message_id: Id,
    pub(crate) attempts: u32,
    pub(crate) priority: i32,
    /// RFC 3339.
    pub(crate) published_at: String,
    pub(crate) expires_at: Option<String>,
    /// If it was published with a delay.
    pub(crate) deliver_at: Option<String>,
    pub(crate) content_type: String,
    /// Empty: none.
    pub(crate) ordering_key: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) payload: Payload,
}

#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) bytes: Bytes,
    /// Declared by its publisher and checked by the server.
    pub(crate) is_json: bool,
}

/// Messages were settled.
#[derive(Debug, Serialize)]
pub(crate) struct Settled {
    /// For people: "acknowledged", "returned".
    #[serde(skip)]
    pub(crate) verb: &'static str,
    pub(crate) settled: u64,
    pub(crate) failures: Vec<Failure>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    pub(crate) message_id: Id,
    pub(crate) reason: &'static str,
}

/// Leases were extended.
#[derive(Debug, Serialize)]
pub(crate) struct Extended {
    pub(crate) extended: u64,
    pub(crate) failures: Vec<TokenFailure>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TokenFailure {
    /// Base64, as it was given.
    pub(crate) delivery_token: String,
    pub(crate) reason: &'static str,
}

/// As `boltq.admin.v1.GetStatsResponse`, with its names.
#[derive(Debug, Serialize)]
pub(crate) struct Stats {
    pub(crate) queues: BTreeMap<String, u64>,
    pub(crate) dead_letters: BTreeMap<String, u64>,
    pub(crate) pending: u64,
    pub(crate) delayed: u64,
    pub(crate) published: u64,
    pub(crate) consumed: u64,
    pub(crate) acked: u64,
    pub(crate) nacked: u64,
    pub(crate) expired: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) dropped: u64,
    pub(crate) rejected: u64,
    /// In JSON as protobuf has durations there: seconds with a unit, `12.500s`.
    #[serde(serialize_with = "as_text")]
    pub(crate) uptime: prost_types::Duration,
    pub(crate) version: String,
    pub(crate) storage: Storage,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Storage {
    pub(crate) mode: String,
    pub(crate) bytes: u64,
    pub(crate) writable: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Health {
    pub(crate) status: &'static str,
}

/// As `boltq.queue.v1.Queue`, with its names.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) ready: u64,
    pub(crate) leased: u64,
    pub(crate) delayed: u64,
    pub(crate) dead_letters: u64,
    pub(crate) consumers: u32,
    pub(crate) settings: Settings,
}

/// Many queues: a table with one row each, or one object each.
#[derive(Debug)]
pub(crate) struct Queues(pub(crate) Vec<Queue>);

/// Messages were removed.
#[derive(Debug, Serialize)]
pub(crate) struct Purged<'a> {
    /// For people: "messages", "dead letters".
    #[serde(skip)]
    pub(crate) what: &'static str,
    pub(crate) queue: &'a str,
    pub(crate) purged: u64,
}

/// Dead letters went back.
#[derive(Debug, Serialize)]
pub(crate) struct Redriven<'a> {
    pub(crate) queue: &'a str,
    pub(crate) redriven: u64,
}

/// A message id, printed as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(pub(crate) MessageId);

impl Id {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, CliError> {
        <[u8; 16]>::try_from(bytes)
            .map(|id| Self(MessageId(id)))
            .map_err(|_| CliError::BadAnswer(format!("a message id of {} bytes instead of 16", bytes.len())))
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Delivered {
    pub(crate) fn read(delivery: pb::Delivery) -> Result<Self, CliError> {
        let pb::Delivery {
            delivery_token,
            message_id,
            payload,
            headers,
            content_type,
            priority,
            published_at,
            attempts,
            expires_at,
            deliver_at,
            ordering_key,
        } = delivery;
        Ok(Self {
            delivery_token: Some(delivery_token).filter(|token| !token.is_empty()),
            message_id: Id::read(&message_id)?,
            attempts,
            priority,
            published_at: published_at.unwrap_or_default().to_string(),
            expires_at: expires_at.map(|at| at.to_string()),
            deliver_at: deliver_at.map(|at| at.to_string()),
            payload: Payload {
                bytes: payload,
                is_json: content_type == "application/json",
            },
            content_type,
            ordering_key,
            headers,
        })
    }
}

impl From<pb::Queue> for Queue {
    fn from(queue: pb::Queue) -> Self {
        let pb::Queue {
            name,
            ready,
            leased,
            delayed,
            dead_letters,
            consumers,
            settings,
        } = queue;
        Self {
            name,
            ready,
            leased,
            delayed,
            dead_letters,
            consumers,
            settings: Settings::from(settings.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn delivered() -> Delivered {
        Delivered {
            delivery_token: None,
            message_id: Id(MessageId(std::array::from_fn(|i| u8::try_from(i).unwrap()))),
            attempts: 2,
            priority: 0,
            published_at: "2025-01-01T00:00:00Z".into(),
            expires_at: None,
            deliver_at: None,
            content_type: String::new(),
            ordering_key: String::new(),
            headers: [("b", "2"), ("a", "1")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            payload: Payload {
                bytes: Bytes::from_static(b"hello"),
                is_json: false,
            },
        }
    }

    pub(super) fn shown(format: Format, result: &impl Show) -> String {
        let mut printer = Printer {
            format,
            out: Vec::new(),
        };
        printer.print(result).unwrap();
        String::from_utf8(printer.out).unwrap()
    }

    #[test]
    fn an_id_of_another_length_is_an_unexpected_answer() {
        assert!(matches!(Id::read(&[0; 15]), Err(CliError::BadAnswer(_))));
    }

    #[test]
    fn json_has_the_names_of_the_api_and_nothing_for_people() {
        let purged = Purged {
            what: "messages",
            queue: "email_jobs",
            purged: 1204,
        };
        assert_eq!(
            shown(Format::Json, &purged),
            "{\"queue\":\"email_jobs\",\"purged\":1204}\n"
        );
        let queue = || Queue {
            name: "a".into(),
            ready: 1,
            leased: 2,
            delayed: 3,
            dead_letters: 4,
            consumers: 5,
            settings: Settings::default(),
        };
        let line = "{\"name\":\"a\",\"ready\":1,\"leased\":2,\"delayed\":3,\"dead_letters\":4,\"consumers\":5,\"settings\":{}}\n";
        assert_eq!(shown(Format::Json, &queue()), line);
        assert_eq!(shown(Format::Json, &Queues(vec![queue(), queue()])), line.repeat(2));
    }
}
