//! One file per command: ask the server, hand the result to the printer.

mod ack;
mod bench;
mod cluster;
mod completions;
mod consume;
mod exchange;
mod extend;
mod follow;
mod health;
mod key;
mod kv;
mod lines;
mod managing;
mod nack;
mod publish;
mod publish_file;
mod queue;
mod settle;
mod stats;
mod top;
mod topic;

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use crate::args::{Args, Command};
use crate::connect::{Server, Target};
use crate::error::CliError;
use crate::printer::{Printer, printable_lines};
use crate::progress;

/// What every command works with.
struct Context {
    server: Server,
    printer: Printer,
}

/// Runs the command and flushes what it printed, also when it ended with an error.
pub(crate) async fn run(args: Args) -> Result<(), CliError> {
    if let Command::Completions { shell } = args.command {
        return Ok(completions::run(shell)?);
    }
    let mut printer = Printer::stdout(args.output);
    if let Command::Key(key) = args.command {
        return key::run(&mut printer, key);
    }
    let target = Target {
        addr: args.addr,
        tls: args.tls,
    };
    if target.tls.is_insecure() {
        note("the certificate of the server is not looked at: whoever is in between can read and change everything");
    }
    let mut context = Context {
        server: Server::connect(&target).await?,
        printer,
    };
    let result = match args.command {
        Command::Publish(publish) => publish::run(&mut context, publish).await,
        Command::Consume(consume) if consume.follow => follow::run(&mut context, &consume).await,
        Command::Consume(consume) => consume::run(&mut context, &consume).await,
        Command::Ack(ack) => ack::run(&mut context, &ack).await,
        Command::Nack(nack) => nack::run(&mut context, &nack).await,
        Command::Extend(extend) => extend::run(&mut context, extend).await,
        Command::Stats(current) => stats::run(&mut context, current).await,
        Command::Health => health::run(&mut context).await,
        Command::Queue(queue) => queue::run(&mut context, queue).await,
        Command::Topic(topic) => topic::run(&mut context, topic).await,
        Command::Exchange(exchange) => exchange::run(&mut context, exchange).await,
        Command::Kv(kv) => kv::run(&mut context, kv).await,
        Command::Key(key) => key::run(&mut context.printer, key),
        Command::Cluster(cluster) => cluster::run(&mut context, cluster).await,
        Command::Top(top) => top::run(&mut context, top, (&target.addr, args.output)).await,
        Command::Bench(bench) => bench::run(&mut context, &bench).await,
        // Done above, without a server.
        Command::Completions { .. } => Ok(()),
    };
    let flushed = context.printer.flush();
    match result {
        Err(CliError::Lost { why }) => Err(health::diagnosis(&target, why).await),
        Err(CliError::Refused(refusal)) if context.server.sends_key() => Err(refusal.of_sent_key().into()),
        Err(error) => Err(error),
        Ok(()) => Ok(flushed?),
    }
}

/// Says something that is not the result.
fn note(text: impl Display) {
    progress::clear();
    // Nobody can be told that stderr is closed, and the result does not depend on it.
    let _ = writeln!(io::stderr().lock(), "{}", printable_lines(&text.to_string()));
}

/// A duration for the wire.
fn wire(duration: Duration) -> Result<prost_types::Duration, CliError> {
    prost_types::Duration::try_from(duration).map_err(|_| CliError::Usage(format!("{duration:?} is too long")))
}
