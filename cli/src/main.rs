//! `boltq`: publish, consume, settle and look, from a shell.
//!
//! A call of the gRPC API per command, and nothing that another client could not do. Three promises to scripts:
//!
//! - Results go to stdout, everything else to stderr. `--output json` is a contract: one object a line.
//! - Exit code 0 is done, 1 refused or failed, 2 wrong usage. A reader that closes the pipe has seen enough: 0.
//! - A message is settled only after it was written to stdout and flushed.

mod address;
mod args;
mod commands;
mod connect;
mod error;
mod printer;
mod progress;
mod tls;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use tokio::runtime;

use crate::args::{Args, Command};
use crate::error::CliError;

fn main() -> ExitCode {
    let args = match args::parse(env::args_os()) {
        Ok(args) => args,
        Err(answer) => {
            // Help and version come this way too. A closed pipe is all that can fail, and there is nobody to tell.
            let _ = answer.print();
            return ExitCode::from(if answer.use_stderr() { error::EXIT_USAGE } else { 0 });
        }
    };
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            // What the server says may have names in it that somebody else chose.
            let text = error.to_string();
            let _ = writeln!(io::stderr().lock(), "error: {}", printer::printable_lines(&text));
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(args: Args) -> Result<(), CliError> {
    let mut builder = match args.command {
        // A load is to find out what the server can do, and not what one core can.
        Command::Bench(_) => runtime::Builder::new_multi_thread(),
        _ => runtime::Builder::new_current_thread(),
    };
    let runtime = builder.enable_all().build().map_err(CliError::Runtime)?;
    let result = runtime.block_on(commands::run(args));
    // A name look-up that hangs sits on a thread of its own; dropping the runtime would wait for it.
    runtime.shutdown_background();
    result
}
