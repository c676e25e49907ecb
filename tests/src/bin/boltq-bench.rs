//! `boltq-bench`: how fast the broker is, beside the bare transport on the same machine.

use boltq_tests::bench::{self, BenchOptions};
use clap::{Parser, Subcommand};

/// Measures a BoltQ server and prints one table. Without a command, measures.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: BenchOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answers batches of publishes over gRPC without a broker; started by the benchmark itself.
    BareGrpc {
        /// Port of 127.0.0.1.
        #[arg(long)]
        port: u16,
    },
    /// Answers frames of the binary protocol without a broker; started by the benchmark itself.
    BareTcp {
        /// Port of 127.0.0.1.
        #[arg(long)]
        port: u16,
    },
}

/// Two threads: client and server share the machine as they do where both have two cores.
#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::BareGrpc { port }) => bench::serve_bare_grpc(port).await,
        Some(Command::BareTcp { port }) => bench::serve_bare_tcp(port).await,
        None => bench::run(&arguments.options).await,
    }
}
