//! The clients in their languages, each by a program of its own that `clients/README.md` has the contract of, beside the one for
//! Rust in the same run.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;

use serde::Deserialize;

use super::PAYLOAD_BYTES;
use super::load::{Failure, Figure};
use super::options::BenchOptions;
use super::report::{Line, Verdict};
use super::rows::{Row, median_figure};
use super::target::Target;
use crate::harness::ServerOptions;

/// What a program is asked for, and how much of it takes seconds.
struct Case {
    name: &'static str,
    messages: u64,
    /// By client, in the order of [`Language`].
    works: [&'static str; 3],
}

const CASES: [Case; 3] = [
    Case {
        name: "publish_batches",
        messages: 500_000,
        works: [
            "Rust client, publisher",
            "Go client, publisher",
            "Node client, publisher",
        ],
    },
    Case {
        name: "publish_single",
        messages: 5_000,
        works: [
            "Rust client, single publishes",
            "Go client, single publishes",
            "Node client, single publishes",
        ],
    },
    Case {
        name: "worker",
        messages: 100_000,
        works: ["Rust client, worker", "Go client, worker", "Node client, worker"],
    },
];
/// With `--quick`, so many times less.
const QUICK: u64 = 100;

/// That a client is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    /// The others are compared with it.
    Rust,
    /// `clients/go`.
    Go,
    /// `clients/node`.
    Node,
}

/// A client and the program that measures it.
#[derive(Debug, Clone)]
pub struct ClientProgram {
    language: Language,
    program: PathBuf,
    arguments: Vec<String>,
}

impl FromStr for ClientProgram {
    type Err = String;

    /// `rust=target/release/examples/bench`, `node=node clients/node/bench/bench.mjs`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no client; write rust=PROGRAM, go=PROGRAM or \"node=node SCRIPT\"");
        let (name, command) = text.split_once('=').ok_or_else(wrong)?;
        let language = match name {
            "rust" => Language::Rust,
            "go" => Language::Go,
            "node" => Language::Node,
            _ => return Err(wrong()),
        };
        let mut words = command.split_whitespace();
        Ok(Self {
            language,
            program: words.next().ok_or_else(wrong)?.into(),
            arguments: words.map(str::to_owned).collect(),
        })
    }
}

/// What a program prints.
#[derive(Debug, Deserialize)]
struct Answer {
    messages: u64,
    seconds: f64,
}

/// A line for each case and client that was named.
pub(super) async fn lines(options: &BenchOptions) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::new();
    if options.clients.is_empty() {
        return Ok(lines);
    }
    let is_rust = |client: &ClientProgram| client.language == Language::Rust;
    let rust = options.clients.iter().position(is_rust);
    let rust = rust.ok_or("the clients are compared with that for Rust; add --client rust=PROGRAM")?;
    for case in &CASES {
        let mut runs: Vec<Vec<Figure>> = vec![Vec::new(); options.clients.len()];
        for run in 0..options.runs() as usize {
            for turn in 0..options.clients.len() {
                // Another one comes first in each run.
                let index = (turn + run) % options.clients.len();
                runs[index].push(measure(case, &options.clients[index], options.quick).await?);
            }
        }
        for (client, figures) in options.clients.iter().zip(&runs) {
            let work = case.works[client.language as usize];
            lines.push(Line::rates(
                Row::Clients,
                work,
                figures,
                (median_figure(figures), median_figure(&runs[rust])),
                (String::new(), Verdict::None),
            ));
        }
    }
    Ok(lines)
}

/// One run on a new server.
async fn measure(case: &Case, client: &ClientProgram, quick: bool) -> Result<Figure, Failure> {
    let target = Target::broker(&ServerOptions::disk())?;
    let messages = if quick { case.messages / QUICK } else { case.messages };
    let before: std::time::Duration = target.stats().iter().map(|stat| stat.usage().cpu).sum();
    let mut command = Command::new(&client.program);
    command
        .args(&client.arguments)
        .args(["--address", &target.address().to_string(), "--case", case.name])
        .args([
            "--messages",
            &messages.to_string(),
            "--payload",
            &PAYLOAD_BYTES.to_string(),
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    // It may take a minute.
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    if !output.status.success() {
        return Err(format!("{} for {}: {}", client.program.display(), case.name, output.status).into());
    }
    let answer: Answer = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{} for {}: {error}", client.program.display(), case.name))?;
    let after: std::time::Duration = target.stats().iter().map(|stat| stat.usage().cpu).sum();
    // With that of warming up.
    Figure::of(
        answer.messages,
        std::time::Duration::try_from_secs_f64(answer.seconds)?,
        after.saturating_sub(before),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_a_language_and_a_command() {
        let node: ClientProgram = "node=node bench.mjs --fast".parse().unwrap();
        assert_eq!((node.language, node.program.to_str()), (Language::Node, Some("node")));
        assert_eq!(node.arguments, ["bench.mjs", "--fast"]);
        for wrong in ["rust", "rust=", "java=x"] {
            assert!(wrong.parse::<ClientProgram>().is_err(), "{wrong}");
        }
    }
}
