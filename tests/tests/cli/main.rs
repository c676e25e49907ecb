//! The command line with a real server, where what matters is what both do together. What it sends and prints is tested in `cli/`.

mod bench;
mod commands;

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use boltq_tests::harness::cli_binary;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// How a command ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    /// The one object that was printed.
    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// Runs `boltq` with nothing from the environment of the test.
fn boltq(address: SocketAddr, args: &[&str]) -> Ran {
    run(Command::new(cli_binary())
        .args(args)
        .env_clear()
        .env("BOLTQ_ADDR", address.to_string()))
}

/// A machine that stalls can keep a connection from being there within the 3 s that people are made to wait; such a command did
/// nothing, and is run again.
fn run(command: &mut Command) -> Ran {
    let started = Instant::now();
    loop {
        let Output { status, stdout, stderr } = command.output().expect("run boltq");
        let ran = Ran {
            code: status.code(),
            stdout: String::from_utf8(stdout).expect("UTF-8"),
            stderr: String::from_utf8(stderr).expect("UTF-8"),
        };
        if !ran.stderr.starts_with("error: no connection to ") || started.elapsed() > PATIENCE {
            return ran;
        }
    }
}
