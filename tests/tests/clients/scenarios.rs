//! All scenarios of `tests/conformance/scenarios`.

use std::sync::Arc;

use boltq_tests::testbed::{BedThread, TestBedOptions};
use clap::Parser;

use crate::runner::{Scenario, run};

/// On each bed all of them, and then what failed: one failure does not hide others.
async fn run_all(on: &str, nodes: &str) {
    let options = TestBedOptions::parse_from(["boltq-testbed", "--nodes", nodes]);
    let bed = Arc::new(BedThread::start(options).await);
    let all: Vec<Scenario> = Scenario::all()
        .into_iter()
        .filter(|scenario| scenario.is_on(on))
        .collect();
    assert!(all.len() >= 5, "{} scenarios", all.len());
    let mut failures = Vec::new();
    for scenario in &all {
        println!("{on}: {}", scenario.name);
        if let Err(failure) = run(scenario, &bed).await {
            failures.push(format!("{}: {failure}", scenario.name));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} failed on {on}:\n{}",
        failures.len(),
        all.len(),
        failures.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_does_what_the_scenarios_say() {
    run_all("single", "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_do_what_the_scenarios_say() {
    run_all("cluster", "3").await;
}
