//! `boltq kv …`

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgGroup, Subcommand};

use super::duration;

/// Any node takes these commands. Keys are 1 to 1,024 bytes of UTF-8.
#[derive(Debug, Subcommand)]
pub(crate) enum Kv {
    /// Print the value of a key; exits with 1 if there is none
    Get(Key),
    /// Set a key, and print the version of its value
    Set(Set),
    /// Delete a key
    Del {
        #[command(flatten)]
        key: Key,
        /// Only if its value has this version
        #[arg(long, value_name = "VERSION")]
        if_version: Option<u64>,
    },
    /// Whether a key has a value; exits with 0 also if it has none
    Exists(Key),
    /// List keys, one a line, in byte order
    Keys {
        /// p*, *s, *m*, or one key
        #[arg(default_value = "*")]
        pattern: String,
    },
    /// Change how long the value of a key lives
    Expire(Expire),
    /// Add to the number that is the value of a key, and print the sum; without a value it counts from 0
    Incr {
        #[command(flatten)]
        key: Key,
        /// What to add
        #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
        by: i64,
    },
    /// Remove everything
    Flush,
    /// Figures of the cache, as the node at --addr has them
    Stats,
    /// Print changes as they are made, until it is interrupted
    Watch {
        /// p*, *s, *m*, or one key
        #[arg(default_value = "*")]
        pattern: String,
        /// Begin with what there is
        #[arg(long)]
        initial: bool,
        /// End after so many lines
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        max: Option<u64>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Key {
    /// The key
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("condition").args(["if_absent", "if_present", "if_version"]))]
pub(crate) struct Set {
    #[command(flatten)]
    pub(crate) key: Key,
    /// The value; write -- before one that starts with a dash and is no number
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    pub(crate) value: OsString,
    /// How long it lives, 0 for ever [default: cache.default_ttl_ms of the server]
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) ttl: Option<Duration>,
    /// Only if there is no value
    #[arg(long)]
    pub(crate) if_absent: bool,
    /// Only if there is one
    #[arg(long)]
    pub(crate) if_present: bool,
    /// Only if there is one of this version
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Expire {
    #[command(flatten)]
    pub(crate) key: Key,
    /// From now on, 0 for ever
    #[arg(long, value_parser = duration::parse, value_name = "DURATION", required = true)]
    pub(crate) ttl: Duration,
}
