//! `boltq-sim`: runs seeds of the simulation, one or many, and says how to repeat the one that fails.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use boltq_sim::{Broken, Report, run};
use clap::Parser;

/// Simulates clusters. Without options, runs 200 seeds.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Runs this seed alone, and prints what happened in it.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs so many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Seeds that run at a time; default: one for each core.
    #[arg(long)]
    threads: Option<usize>,
    /// What is broken on purpose; an unknown name lists them.
    #[arg(long, value_parser = broken)]
    broken: Option<Broken>,
    /// Shows what the broker logs, filtered as in `RUST_LOG`; for one seed.
    #[arg(long)]
    log: Option<String>,
}

fn broken(name: &str) -> Result<Broken, String> {
    let found = Broken::ALL.into_iter().find(|(known, _)| *known == name);
    found
        .map(|(_, broken)| broken)
        .ok_or_else(|| Broken::ALL.map(|(known, _)| known).join(", "))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let broken = options.broken.unwrap_or(Broken::Nothing);
    if let Some(filter) = &options.log {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .without_time()
            .with_writer(std::io::stderr)
            .init();
    }
    if let Some(seed) = options.seed {
        let report = run(seed, broken);
        if report.violation.is_none() {
            println!("{}\n", report.lines.join("\n"));
        }
        println!("{}", report.text());
        return exit(report.violation.is_none());
    }
    let failed = run_many(&options, broken);
    for report in &failed {
        println!("{}\n", report.text());
    }
    println!("{} seeds from {}: {} failed", options.seeds, options.from, failed.len());
    exit(failed.is_empty())
}

fn exit(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The seeds that failed, in order.
fn run_many(options: &Options, broken: Broken) -> Vec<Report> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores);
    let next = AtomicU64::new(options.from);
    let end = options.from.saturating_add(options.seeds);
    let failed = Mutex::new(Vec::new());
    let counts = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let report = run(seed, broken);
                    let mut all = counts.lock().expect("no thread panics while it holds this");
                    for (what, count) in &report.counts {
                        *all.entry(*what).or_insert(0u64) += count;
                    }
                    drop(all);
                    if let Some(violation) = &report.violation {
                        println!("seed {seed} violates {}: {}", violation.checker, violation.what);
                        failed
                            .lock()
                            .expect("no thread panics while it holds this")
                            .push(report);
                    }
                }
            });
        }
    });
    println!(
        "{:?}",
        counts.into_inner().expect("no thread panics while it holds this")
    );
    let mut failed = failed.into_inner().expect("no thread panics while it holds this");
    failed.sort_by_key(|report| report.seed);
    failed
}
