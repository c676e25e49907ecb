//! The programs in `clients/rust/examples`.

use std::process::Command;

use boltq_tests::harness::{Server, ServerOptions, cargo_build};
use serde_json::Value;

/// What an example prints.
fn run(example: &str, arguments: &[&str]) -> String {
    // Of the workspace: so it is compiled with what `cargo test --workspace` has compiled.
    let directory = cargo_build(&["--workspace", "--example", example]);
    let output = Command::new(directory.join("examples").join(example))
        .args(arguments)
        .output()
        .expect("run the example");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_quick_start_does_what_it_says() {
    let server = Server::start(&ServerOptions::memory());
    let address = server.messaging().to_string();
    for time in ["1", "2"] {
        let shown = run("quickstart", &[&address]);
        let (last, messages): (&str, Vec<&str>) = {
            let mut lines: Vec<&str> = shown.lines().collect();
            (lines.pop().expect("a last line"), lines)
        };
        assert_eq!(last, format!("done: {time}"));
        assert_eq!(messages.len(), 10, "{shown}");
    }
}

#[test]
fn the_benchmark_prints_what_its_contract_says() {
    let server = Server::start(&ServerOptions::memory());
    let address = server.messaging().to_string();
    for case in ["publish_batches", "publish_single", "worker"] {
        let arguments = [
            "--address",
            &address,
            "--case",
            case,
            "--messages",
            "200",
            "--payload",
            "64",
        ];
        let shown: Value = serde_json::from_str(&run("bench", &arguments)).expect("a line of JSON");
        assert_eq!((&shown["client"], &shown["case"]), (&"rust".into(), &case.into()));
        assert_eq!((&shown["messages"], &shown["payload_bytes"]), (&200.into(), &64.into()));
        assert!(shown["seconds"].as_f64().expect("a number") > 0.0);
        assert!(shown["messages_per_second"].as_f64().expect("a number") > 0.0);
    }
}
