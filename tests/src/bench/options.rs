//! What a person can choose.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::clients::ClientProgram;
use super::load::{Failure, Timing};
use super::rows::Row;

/// Options of a measurement.
#[derive(Debug, Clone, Args)]
pub struct BenchOptions {
    /// Runs of each row; the table shows medians.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Only these rows, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Row>,
    /// One short run of each row, and nothing that takes 10 million messages: to see that it works, not how fast.
    #[arg(long)]
    pub quick: bool,
    /// How often the leader of a cluster is killed.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub kills: u32,
    /// What is written while a follower is away, in megabytes of payload.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub catch_up_mb: u64,
    /// A client to measure, `rust=PROGRAM`, `go=PROGRAM` or `node=PROGRAM`, and its arguments; may be repeated. `clients/README.md` says what such a
    /// program does.
    #[arg(long = "client", value_name = "LANGUAGE=PROGRAM")]
    pub clients: Vec<ClientProgram>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// The server to measure. Default: `boltq-server` beside this program.
    #[arg(long, env = "BOLTQ_SERVER_BIN")]
    pub server: Option<PathBuf>,
}

/// Form of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// One object, for programs.
    Json,
}

impl BenchOptions {
    pub(super) fn server_binary(&self) -> Result<PathBuf, Failure> {
        let path = match &self.server {
            Some(path) => std::path::absolute(path)?,
            None => std::env::current_exe()?.with_file_name("boltq-server"),
        };
        if !path.is_file() {
            let shown = path.display();
            return Err(
                format!("{shown} is not there; build it in this profile, or give another with --server").into(),
            );
        }
        Ok(path)
    }

    pub(super) fn runs(&self) -> u32 {
        if self.quick { 1 } else { self.runs }
    }

    pub(super) fn kills(&self) -> u32 {
        if self.quick { self.kills.min(3) } else { self.kills }
    }

    pub(super) fn catch_up_bytes(&self) -> u64 {
        let mb = if self.quick {
            self.catch_up_mb.min(100)
        } else {
            self.catch_up_mb
        };
        mb * 1_000_000
    }

    pub(super) fn idle_time(&self) -> Duration {
        Duration::from_secs(if self.quick { 5 } else { 20 })
    }

    pub(super) fn timing(&self) -> Timing {
        let measure = if self.quick {
            Duration::from_secs(1)
        } else {
            Duration::from_secs(3)
        };
        Timing {
            warm_up: Duration::from_millis(500),
            measure,
        }
    }

    pub(super) fn wants(&self, row: Row) -> bool {
        self.only.is_empty() || self.only.contains(&row)
    }
}
