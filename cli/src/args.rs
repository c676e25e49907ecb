//! What was typed, checked as far as that is possible without a server.

mod bench;
mod duration;
mod key;
mod kv;
mod rewrite;
mod routing;
mod scheduled;
mod settings;
mod tls;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use boltq_core::{MessageId, NameError, check_name};
use boltq_proto::queue::v1 as wire;
use bytes::Bytes;
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use self::bench::{Bench, Sort, Top};
pub(crate) use self::kv::{Expire, Key, Kv, Set};
use crate::connect::ADDR_DEFAULT;

pub(crate) use self::key::Key as ApiKeys;
pub(crate) use self::tls::Tls;
pub(crate) use routing::{Exchange, ExchangeKind, Topic};
pub(crate) use scheduled::{Reschedule, Scheduled};
pub(crate) use settings::{CreateQueue, DeleteQueue, Overflow, Settings, UpdateQueue};

/// Longest that a server waits for a message.
const WAIT_MAX: Duration = Duration::from_secs(60);

const AFTER_HELP: &str = "\
Long options may have one dash: -topic is --topic.

Environment:
  BOLTQ_ADDR             address of the server, as --addr
  BOLTQ_API_KEY          sent with every call
  BOLTQ_TLS_ENABLED      true: as --tls
  BOLTQ_CA_FILE          as --ca-file
  BOLTQ_TLS_CERT         as --cert-file
  BOLTQ_TLS_KEY          as --key-file
  BOLTQ_TLS_SERVER_NAME  as --tls-server-name
  BOLTQ_TLS_INSECURE     true: as --tls-insecure

Exit code: 0 done, 1 refused or failed, 2 wrong usage.";

/// Publish, consume and look at the queues of a BoltQ server.
#[derive(Debug, Parser)]
#[command(name = "boltq", version, after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// Messaging address of the server
    #[arg(long, global = true, env = "BOLTQ_ADDR", default_value = ADDR_DEFAULT, value_name = "HOST:PORT")]
    pub(crate) addr: String,
    #[command(flatten)]
    pub(crate) tls: Tls,
    /// How results are printed
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs: one object a line
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Append messages to a queue, which is created on first use
    Publish(Publish),
    /// Take messages from a queue
    Consume(Consume),
    /// Settle messages: they are done and will not be delivered again
    Ack(Ack),
    /// Give messages back as failed: they are delivered again, or become dead letters
    Nack(Nack),
    /// Move the end of leases that are still held
    Extend(Extend),
    /// Counters and totals of the server
    Stats(Current),
    /// Whether the server is serving; exits with 1 if it is not
    Health,
    /// Look at queues, give them settings, empty and delete them
    #[command(subcommand)]
    Queue(Queue),
    /// Publish to topics and subscribe to them
    #[command(subcommand)]
    Topic(Topic),
    /// Declare exchanges, bind queues to them and publish
    #[command(subcommand)]
    Exchange(Exchange),
    /// The key-value cache
    #[command(subcommand)]
    Kv(Kv),
    /// Make keys for the configuration of a server; asks none
    #[command(subcommand)]
    Key(ApiKeys),
    /// Look at the cluster and change it
    #[command(subcommand)]
    Cluster(Cluster),
    /// See what the queues are doing, again and again
    Top(Top),
    /// Load a server and see how fast it is
    Bench(Bench),
    /// Print a script that completes commands and options in a shell
    Completions {
        /// Name of the shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

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

#[derive(Debug, clap::Args)]
pub(crate) struct Consume {
    /// Name of the queue
    #[arg(long = "queue", visible_alias = "topic", value_name = "QUEUE", value_parser = queue_name)]
    pub(crate) queue: String,
    /// Messages at most [default: 1, with --follow no end]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max: Option<u64>,
    /// Wait so long for the first message, 60s at most
    #[arg(long, value_parser = wait, value_name = "DURATION", conflicts_with = "follow")]
    pub(crate) wait: Option<Duration>,
    /// Length of the leases, 1s to 12h [default: ack_timeout of the queue]
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) lease: Option<Duration>,
    /// Acknowledge messages when they are printed; without it they come again when their lease ends
    #[arg(long)]
    pub(crate) ack: bool,
    /// Print messages as they come; those without an ack go back to the queue at the end
    #[arg(long)]
    pub(crate) follow: bool,
    /// With --follow: messages at most that are not acknowledged
    #[arg(long, value_name = "N", requires = "follow", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) prefetch: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ack {
    #[command(flatten)]
    pub(crate) ids: Ids,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Nack {
    #[command(flatten)]
    pub(crate) ids: Ids,
    /// Deliver them again after this time, 24h at most [default: the backoff of the server]
    #[arg(long, value_parser = duration::parse, value_name = "DURATION", conflicts_with = "dead_letter")]
    pub(crate) delay: Option<Duration>,
    /// Straight to the dead letters, whatever the number of attempts
    #[arg(long)]
    pub(crate) dead_letter: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ids {
    /// Ids of messages, 32 hexadecimal digits each
    #[arg(long = "id", value_name = "ID", required = true, num_args = 1..)]
    pub(crate) ids: Vec<MessageId>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Extend {
    /// The delivery_token of a message, as consume prints it with --output json
    #[arg(long = "token", value_name = "TOKEN", required = true, num_args = 1.., value_parser = token)]
    pub(crate) tokens: Vec<Token>,
    /// New length of the leases from now, 1s to 12h
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) lease: Duration,
}

/// Names a lease; opaque.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) Bytes);

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Current {
    /// Only if the node is certain to have everything that was answered before; any node of a cluster can be asked
    #[arg(long)]
    pub(crate) linearizable: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Queue {
    /// All queues by name
    List {
        #[command(flatten)]
        current: Current,
        /// Only names that start with this
        #[arg(long, default_value = "", hide_default_value = true)]
        prefix: String,
    },
    /// One queue
    Get {
        #[command(flatten)]
        name: QueueName,
        #[command(flatten)]
        current: Current,
    },
    /// Create a queue with settings of its own; again with the same ones is harmless
    Create(CreateQueue),
    /// Change settings of a queue
    Update(UpdateQueue),
    /// Delete a queue with its messages, bindings and settings; its dead letters stay
    Delete(DeleteQueue),
    /// Deliver nothing of a queue for now; it takes messages still
    Pause(QueueName),
    /// Deliver messages of a paused queue again
    Resume(QueueName),
    /// The next messages, without taking them
    Peek {
        #[command(flatten)]
        name: QueueName,
        /// Messages at most, 1 to 1000
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        max: u32,
        #[command(flatten)]
        current: Current,
    },
    /// Remove all messages that are ready; leased and delayed ones stay
    Purge(QueueName),
    /// Remove the dead letters of a queue
    PurgeDeadLetters(QueueName),
    /// Send the dead letters of a queue back to it, as messages that were never tried
    Redrive(Redrive),
    /// Messages that are not due yet, in the order of their due times
    Scheduled(Scheduled),
    /// Remove messages that are not due yet
    Cancel(Ids),
    /// Give a message that is not due yet another due time
    Reschedule(Reschedule),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Redrive {
    #[command(flatten)]
    pub(crate) name: QueueName,
    /// Only those with this header, x-death-reason for example; may be repeated
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = header, allow_hyphen_values = true)]
    pub(crate) headers: Vec<(String, String)>,
    /// Messages at most [default: all that are there]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max: Option<u64>,
    /// Messages each second at most [default: as fast as it goes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
}

/// Any node takes these commands and passes changes on to the leader.
#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Nodes and groups, as the node at --addr sees them
    Status,
    /// Take a node into the cluster that runs and has the same secret; again is harmless
    Join {
        /// Where other nodes reach it, host and port: its cluster.raft_addr
        #[arg(value_name = "HOST:PORT", value_parser = NonEmptyStringValueParser::new())]
        address: String,
        /// Refuse it if it has another name
        #[arg(long, value_name = "NODE", default_value = "", hide_default_value = true)]
        node_id: String,
        /// As a read replica, which gets everything and does not vote
        #[arg(long)]
        non_voter: bool,
    },
    /// Take a node out of the cluster, for good; a restart needs none of this
    Leave {
        /// Its name
        #[arg(value_name = "NODE", value_parser = node_name)]
        node: String,
    },
    /// Hand the leadership of a group over to another voter
    Transfer {
        /// meta, queue, stream-0, stream-1 …
        #[arg(value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
        group: String,
        /// Name of the node [default: the voter that has most of the log]
        #[arg(value_name = "NODE", default_value = "", hide_default_value = true)]
        node: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueueName {
    /// Name of the queue
    #[arg(value_name = "QUEUE", value_parser = queue_name)]
    pub(crate) queue: String,
}

/// Reads a command line, the name of the program included. An error may also be help or a version to print.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let command = Args::command();
    let args = rewrite::rewrite(&command, args);
    Args::from_arg_matches(&command.try_get_matches_from(args)?)
}

/// The rule of all names, but for the length: the dead letters of a queue may have a longer one, and the server knows.
fn queue_name(text: &str) -> Result<String, String> {
    match check_name(text) {
        Ok(()) | Err(NameError::TooLong { .. }) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn node_name(text: &str) -> Result<String, String> {
    match check_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn token(text: &str) -> Result<Token, String> {
    let token = STANDARD.decode(text).map(|token| Token(token.into()));
    token.map_err(|error| format!("a token is base64: {error}"))
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the key is empty; write KEY=VALUE".to_owned()),
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err("there is no value; write KEY=VALUE".to_owned()),
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    let wait = duration::parse(text).map_err(|error| error.to_string())?;
    if wait > WAIT_MAX {
        return Err(format!(
            "{} s is the longest wait; --follow has no end",
            WAIT_MAX.as_secs()
        ));
    }
    Ok(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Args, clap::Error> {
        let args = std::iter::once("boltq").chain(args.iter().copied());
        parse(args.map(OsString::from))
    }

    fn refused(args: &[&str]) -> String {
        parsed(args).unwrap_err().to_string()
    }

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_documented_single_dash_form_is_understood() {
        let args = parsed(&[
            "publish",
            "-topic",
            "jobs",
            "-payload",
            "-5",
            "-header",
            "a=b=c",
            "-priority",
            "-1",
        ])
        .unwrap();
        let Command::Publish(publish) = args.command else {
            panic!("{args:?}")
        };
        assert_eq!(publish.queue, "jobs");
        assert_eq!(publish.payload.unwrap(), "-5");
        assert_eq!(publish.envelope.headers, [("a".to_owned(), "b=c".to_owned())]);
        assert_eq!(publish.envelope.priority, -1);
    }

    #[test]
    fn a_payload_may_look_like_anything() {
        for payload in ["-5", "--", "-topic", "--help", "-", "-o", ""] {
            let args = parsed(&["publish", "-topic", "jobs", "-payload", payload]).unwrap();
            let Command::Publish(publish) = args.command else {
                panic!("{args:?}")
            };
            assert_eq!(publish.payload.unwrap(), payload);
        }
    }

    #[test]
    fn several_ids_may_follow_one_option_or_have_one_each() {
        let id = "00112233445566778899aabbccddeeff";
        for ids in [&["-id", id, id][..], &["--id", id, "-id", id], &["-id", id, "-id", id]] {
            let args = parsed(&[&["ack"], ids].concat()).unwrap();
            let Command::Ack(ack) = args.command else {
                panic!("{args:?}")
            };
            assert_eq!(ack.ids.ids, [id.parse().unwrap(); 2]);
        }
    }

    #[test]
    fn wrong_usage_is_refused_before_a_server_is_asked() {
        assert!(refused(&["publish", "-topic", "a"]).contains("--payload"));
        assert!(refused(&["publish", "-topic", "a", "-payload", "x", "-file", "-"]).contains("cannot be used with"));
        for args in [
            &["publish", "-topic", "", "-payload", "x"][..],
            &["consume", "-topic", ""],
            &["queue", "get", ""],
            &["queue", "peek", ""],
            &["queue", "purge", ""],
            &["queue", "purge-dead-letters", ""],
            &["cluster", "leave", ""],
        ] {
            assert!(refused(args).contains("name is empty; give 1 to 200 bytes"), "{args:?}");
        }
        assert!(refused(&["queue", "get", "a\tb"]).contains("control character (U+0009) at byte 1"));
        assert!(refused(&["publish", "-topic", "a", "-payload", "x", "-header", "k"]).contains("KEY=VALUE"));
        assert!(refused(&["publish", "-topic", "a", "-payload", "x", "-delay", "10"]).contains("10s or 10ms"));
        assert!(refused(&["publish", "-topic", "-payload", "x"]).contains("a value is required"));
        for with_file in [&["-ack-level", "none"][..], &["-print-ids"]] {
            let args = [&["publish", "-topic", "a", "-payload", "x"], with_file].concat();
            assert!(refused(&args).contains("cannot be used with"), "{with_file:?}");
        }
        assert!(
            refused(&["publish", "-topic", "a", "-file", "-", "-ack-level", "all"]).contains("quorum, leader, none")
        );
        assert!(refused(&["consume", "-topic", "a", "-wait", "2m"]).contains("--follow"));
        assert!(refused(&["consume", "-topic", "a", "-prefetch", "2"]).contains("--follow"));
        assert!(refused(&["ack", "-id", "12"]).contains("32 hexadecimal digits"));
        assert!(refused(&["ack"]).contains("--id"));
        assert!(refused(&["cluster", "join"]).contains("<HOST:PORT>"));
        assert!(refused(&["cluster", "leave", ""]).contains("<NODE>"));
        assert!(refused(&["ack", "-id", &"0".repeat(32), "-heder"]).contains("'--heder'"));
        assert!(refused(&["publish", "-topic", "a", "-payload", "x", "-prioritty", "3"]).contains("'--priority'"));
    }

    #[test]
    fn options_of_all_commands_may_stand_before_or_after_the_command() {
        for args in [
            &["-output", "json", "stats"][..],
            &["stats", "-o", "json"],
            &["stats", "--output=json"],
        ] {
            assert_eq!(parsed(args).unwrap().output, Format::Json);
        }
    }
}
