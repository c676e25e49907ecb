//! One file per command: ask the server, hand the result to the printer.

mod ack;
mod cluster;
mod consume;
mod exchange;
mod follow;
mod health;
mod kv;
mod lines;
mod managing;
mod nack;
mod publish;
mod publish_file;
mod queue;
mod settle;
mod stats;
mod topic;

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use crate::args::{Args, Command};
use crate::connect::Server;
use crate::error::CliError;
use crate::printer::{Printer, printable_lines};

/// What every command works with.
struct Context {
    server: Server,
    printer: Printer,
}

/// Runs the command and flushes what it printed, also when it ended with an error.
pub(crate) async fn run(args: Args) -> Result<(), CliError> {
    let mut context = Context {
        server: Server::connect(&args.addr).await?,
        printer: Printer::stdout(args.output),
    };
    let result = match args.command {
        Command::Publish(publish) => publish::run(&mut context, publish).await,
        Command::Consume(consume) if consume.follow => follow::run(&mut context, &consume).await,
        Command::Consume(consume) => consume::run(&mut context, &consume).await,
        Command::Ack(ack) => ack::run(&mut context, &ack).await,
        Command::Nack(nack) => nack::run(&mut context, &nack).await,
        Command::Stats(current) => stats::run(&mut context, current).await,
        Command::Health => health::run(&mut context).await,
        Command::Queue(queue) => queue::run(&mut context, queue).await,
        Command::Topic(topic) => topic::run(&mut context, topic).await,
        Command::Exchange(exchange) => exchange::run(&mut context, exchange).await,
        Command::Kv(kv) => kv::run(&mut context, kv).await,
        Command::Cluster(cluster) => cluster::run(&mut context, cluster).await,
    };
    let flushed = context.printer.flush();
    match result {
        Err(CliError::Lost { why }) if !health::answers(&args.addr).await => {
            Err(CliError::NotGrpc { addr: args.addr, why })
        }
        Err(error) => Err(error),
        Ok(()) => Ok(flushed?),
    }
}

/// Says something that is not the result.
fn note(text: impl Display) {
    // Nobody can be told that stderr is closed, and the result does not depend on it.
    let _ = writeln!(io::stderr().lock(), "{}", printable_lines(&text.to_string()));
}

/// A duration for the wire.
fn wire(duration: Duration) -> Result<prost_types::Duration, CliError> {
    prost_types::Duration::try_from(duration).map_err(|_| CliError::Usage(format!("{duration:?} is too long")))
}
