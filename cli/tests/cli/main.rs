//! Every command against a server that remembers what it was asked: requests, output, exit codes, and what a terminal gets.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a helper of a test may fail it"
)]

mod bench;
mod cluster;
mod completions;
mod connecting;
mod consume;
mod fake;
mod kv;
mod look;
mod publish;
mod queues;
mod terminal;
mod top;

use fake::{Ran, boltq, run};

fn done(stdout: &str) -> Ran {
    Ran {
        code: Some(0),
        stdout: stdout.to_owned(),
        stderr: String::new(),
    }
}

fn failed(code: i32, stderr: &str) -> Ran {
    Ran {
        code: Some(code),
        stdout: String::new(),
        stderr: stderr.to_owned(),
    }
}

#[test]
fn wrong_usage_exits_with_2_and_help_with_0() {
    assert_eq!(run(&mut boltq(&["publish"]), b"").code, Some(2));
    assert_eq!(run(&mut boltq(&["ack", "-id", "12"]), b"").code, Some(2));
    assert_eq!(run(boltq(&["stats"]).env("BOLTQ_ADDR", "a:1/path"), b"").code, Some(2));
    let help = run(&mut boltq(&["-help"]), b"");
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(help.stdout.contains("BOLTQ_API_KEY"));
}
