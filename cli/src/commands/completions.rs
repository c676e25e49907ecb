//! `boltq completions`: the only command that asks no server.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;

/// Prints the script of a shell.
pub(super) fn run(shell: Shell) -> io::Result<()> {
    // Into memory first: what writes the script panics when its output is closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "boltq", &mut script);
    let mut stdout = io::stdout().lock();
    stdout.write_all(&script)?;
    stdout.flush()
}
