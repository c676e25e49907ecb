//! `boltq-testbed`: real servers for tests that are not written in Rust; see `tests/conformance/README.md`.

use std::process::ExitCode;

use boltq_tests::testbed::{TestBedOptions, serve};
use clap::Parser;

fn main() -> ExitCode {
    let options = TestBedOptions::parse();
    match serve(&options, std::io::stdin().lock(), &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("boltq-testbed: {error}");
            ExitCode::FAILURE
        }
    }
}
