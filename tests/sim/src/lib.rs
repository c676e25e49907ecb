//! Simulation of whole clusters: every node in one thread, with virtual time, network and disks, and one seed that decides
//! everything.
//!
//! What is real: the log ([`boltq_log`], in steps, over files in memory that lose what was not synced), the groups
//! ([`boltq_raft`] and openraft), the queue plane, and the service layer with its timer. What is ours: the network (the
//! `net` module), when the steps of a disk are taken (`disk`), the clocks (`clocks`), and the clients (`client`). The
//! doors and the node's own start are left out; the end-to-end tests have those.
//!
//! A run brings a cluster up, has clients work on it while [faults](faults) come and go, heals everything, and then
//! looks whether what must never be otherwise is so ([`Checker`]); some of it is watched all the time.
//!
//! Equal seeds make equal runs. A run uses one thread, tokio's clock stands until nothing is left to do, each node runs in a
//! [`boltq_raft::sim::Process`], and chance comes from the seed alone. What could still differ is the order in which things
//! of the standard library's hash maps come; [`Report::hash`] is there to be compared.

mod cache;
mod client;
mod clocks;
mod cluster;
mod disk;
mod door;
mod faults;
mod finish;
mod ledger;
mod net;
mod node;
mod plan;
mod random;
mod routes;
mod trace;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::cache::CacheClient;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::plan::Plan;
use crate::trace::{Trace, note};
use crate::watch::Watch;

pub use plan::Broken;
pub use trace::{Checker, Violation};

/// A run ends before that, in virtual time.
const RUN_MAX: Duration = Duration::from_secs(600);

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What was broken on purpose.
    pub broken: Broken,
    /// What was found to be wrong.
    pub violation: Option<Violation>,
    /// Of everything that happened.
    pub hash: u64,
    /// How much happened.
    pub events: u64,
    /// How often what a run is to reach was reached.
    pub counts: BTreeMap<&'static str, u64>,
    /// The last things that happened.
    pub lines: Vec<String>,
}

impl Report {
    /// The report for people: what broke, what led to it, and how to see it again.
    #[must_use]
    pub fn text(&self) -> String {
        let Some(violation) = &self.violation else {
            return format!(
                "seed {}: well, {} events, hash {:016x}",
                self.seed, self.events, self.hash
            );
        };
        let broken = Broken::ALL.into_iter().find(|(_, broken)| *broken == self.broken);
        let broken = broken.map_or_else(String::new, |(name, _)| format!(" --broken {name}"));
        format!(
            "{}\n\nseed {} violates {}: {}\nrepeat with: cargo run -p boltq-sim -- --seed {}{broken}",
            self.lines.join("\n"),
            self.seed,
            violation.checker,
            violation.what,
            self.seed
        )
    }
}

/// Runs a seed.
///
/// # Panics
/// The runtime cannot be made, or a simulation runs on this thread already.
#[must_use]
pub fn run(seed: u64, broken: Broken) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let trace = Trace::default();
    runtime.block_on(async {
        clocks::begin(seed);
        if timeout(RUN_MAX, live(seed, broken, &trace)).await.is_err() {
            trace.violation(Checker::Progress, format!("the run does not end within {RUN_MAX:?}"));
        }
    });
    drop(runtime);
    Report {
        seed,
        broken,
        violation: trace.found(),
        hash: trace.hash(),
        events: trace.events(),
        counts: trace.counts(),
        lines: trace.lines(),
    }
}

async fn live(seed: u64, broken: Broken, trace: &Trace) {
    let mut plan = Plan::draw(seed, broken);
    let mut random = plan.random.fork();
    note!(trace, "seed {seed}: {plan:?}");
    let cluster = Cluster::new(plan, broken, trace.clone());
    let watch = tokio::spawn(Watch::default().run(cluster.clone()));
    tokio::spawn(cluster.clone().supervise());
    set_up(&cluster).await;
    let mut clients = Vec::new();
    for _ in 0..cluster.plan.clients {
        clients.push(tokio::spawn(Client::new(cluster.clone(), random.fork()).run()));
    }
    clients.push(tokio::spawn(CacheClient::new(cluster.clone(), random.fork()).run()));
    let mut faults = Vec::new();
    for event in cluster.plan.events.clone() {
        faults.push(tokio::spawn(cluster.clone().strike(event, random.fork())));
    }
    let end = cluster.plan.load_ms / 50;
    for _ in 0..end {
        sleep(Duration::from_millis(50)).await;
        if trace.is_broken() {
            return;
        }
    }
    cluster.heal();
    cluster.loaded.store(false, Ordering::Relaxed);
    for task in faults.into_iter().chain(clients) {
        if let Err(error) = task.await {
            trace.violation(Checker::Progress, format!("a task of the simulation: {error}"));
        }
    }
    // What was cut while everything was healed.
    cluster.heal();
    if random.permille(400) {
        cluster.progresses_without(&mut random).await;
    }
    cluster.finish().await;
    if watch.is_finished() {
        trace.violation(Checker::Monotonic, "the watch ended".to_owned());
    }
}

/// Founds the cluster on the first node, and takes in the others.
async fn set_up(cluster: &Arc<Cluster>) {
    for node in 0..cluster.plan.nodes() {
        cluster.up(node, node == 0).await;
    }
    for node in 1..cluster.plan.nodes() {
        while !cluster.take_in(node).await {
            if cluster.trace.is_broken() {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    routes::declare(cluster).await;
    note!(cluster.trace, "the cluster is set up");
}
