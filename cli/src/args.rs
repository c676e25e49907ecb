//! What was typed, checked as far as that is possible without a server.

mod bench;
mod cluster;
mod consume;
mod duration;
mod key;
mod kv;
mod names;
mod publish;
mod queue;
mod rewrite;
mod routing;
mod scheduled;
mod settings;
mod tls;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use self::bench::{Bench, Sort, Top};
pub(crate) use self::cluster::Cluster;
pub(crate) use self::consume::{Ack, Consume, Extend, Ids, Nack};
pub(crate) use self::key::Key as ApiKeys;
pub(crate) use self::kv::{Expire, Key, Kv, Set};
use self::publish::AckLevel;
pub(crate) use self::publish::{Envelope, Publish};
pub(crate) use self::queue::{Queue, QueueName, Redrive};
pub(crate) use self::routing::{Exchange, ExchangeKind, Topic};
pub(crate) use self::scheduled::{Reschedule, Scheduled};
pub(crate) use self::settings::{CreateQueue, DeleteQueue, Overflow, Settings, UpdateQueue};
pub(crate) use self::tls::Tls;
use crate::connect::ADDR_DEFAULT;

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

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Current {
    /// Only if the node is certain to have everything that was answered before; any node of a cluster can be asked
    #[arg(long)]
    pub(crate) linearizable: bool,
}

/// Reads a command line, the name of the program included. An error may also be help or a version to print.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let command = Args::command();
    let args = rewrite::rewrite(&command, args);
    Args::from_arg_matches(&command.try_get_matches_from(args)?)
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
