//! `boltq publish`, and what comes with a payload wherever one is published.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use boltq_proto::queue::v1 as wire;
use clap::ArgGroup;

use super::duration;
use super::names::queue_name;

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("source").required(true).args(["payload", "file"]))]
pub(crate) struct Publish {
    /// Name of the queue
    #[arg(long = "queue", visible_alias = "topic", value_name = "QUEUE", value_parser = queue_name)]
    pub(crate) queue: String,
    /// The message
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) payload: Option<OsString>,
    /// Publish every line of a file that is not empty; - reads stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// With --file: print the id of every message
    #[arg(long, conflicts_with = "payload")]
    pub(crate) print_ids: bool,
    /// With --file: when a message counts as published [default: quorum]
    #[arg(long, value_name = "LEVEL", conflicts_with = "payload")]
    pub(crate) ack_level: Option<AckLevel>,
    #[command(flatten)]
    pub(crate) envelope: Envelope,
}

/// How much a publisher waits for.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum AckLevel {
    /// A majority of the nodes has it
    Quorum,
    /// It is in the log of the leader
    Leader,
    /// The leader has taken it into memory
    None,
}

impl From<AckLevel> for wire::AckLevel {
    fn from(level: AckLevel) -> Self {
        match level {
            AckLevel::Quorum => Self::Quorum,
            AckLevel::Leader => Self::Leader,
            AckLevel::None => Self::None,
        }
    }
}

/// What comes with a payload.
#[derive(Debug, clap::Args)]
pub(crate) struct Envelope {
    /// Application header; may be repeated
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = header, allow_hyphen_values = true)]
    pub(crate) headers: Vec<(String, String)>,
    /// Deliver it after this time: 500ms, 10s, 5m, 1h30m
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) delay: Option<Duration>,
    /// Discard it after this time, the delay included
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) ttl: Option<Duration>,
    /// 0 to 9; 9 is delivered first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, hide_default_value = true)]
    pub(crate) priority: i32,
    /// Media type of the payload; by default application/json if it is JSON, otherwise none
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// Makes the publish repeatable: there is one message with this key, for queue.dedup_ttl of the server. With --file,
    /// each line has the key KEY:NUMBER
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) idempotency_key: Option<String>,
    /// Messages of a queue with the same key are delivered in the order of publishing, and one at a time
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) ordering_key: Option<String>,
}

pub(super) fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the key is empty; write KEY=VALUE".to_owned()),
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err("there is no value; write KEY=VALUE".to_owned()),
    }
}
