//! `boltq cluster …`.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;

use super::names::node_name;

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
