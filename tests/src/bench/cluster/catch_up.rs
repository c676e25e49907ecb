//! How fast a follower gets what was written while it was away.
//!
//! Counted from the start of its process until it has applied the last entry that the leader had then, in bytes of
//! payload. A follower that is far behind gets a snapshot, because the entries are gone; the node says so in its log.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::bench::load::Failure;
use crate::bench::load_grpc::fill;
use crate::bench::options::BenchOptions;
use crate::bench::report::{Line, Verdict, median};
use crate::bench::rows::Row;
use crate::bench::{PAYLOAD_BYTES, QUEUE};
use crate::harness::grpc::{QueueCalls, connect};
use crate::harness::{ClusterNode, ServerOptions};

/// Messages are written by thousands.
const STEP: u64 = 1_000;
const QUEUE_GROUP: &str = "queue";
/// What a node logs when it has installed a snapshot.
const SNAPSHOT_LOGGED: &str = "took over the state of another node";
/// For the writing, and for the catching up.
const WITHIN: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, Serialize)]
struct CatchUp {
    mb_per_s: f64,
    seconds: f64,
    by_snapshot: bool,
}

pub(super) async fn line(options: &BenchOptions) -> Result<Line, Failure> {
    let messages = (options.catch_up_bytes() / PAYLOAD_BYTES as u64).next_multiple_of(STEP);
    let mut runs = Vec::new();
    for _ in 0..options.runs() {
        runs.push(catch_up(messages).await?);
    }
    let mb_per_s = median(runs.iter().map(|run| run.mb_per_s));
    let mb = megabytes(messages);
    let snapshots = runs.iter().filter(|run| run.by_snapshot).count();
    let way = match runs.len() - snapshots {
        0 => "by a snapshot".to_owned(),
        entries if entries == runs.len() => "by entries".to_owned(),
        entries => format!("{snapshots} snapshots, {entries} by entries"),
    };
    Ok(Line {
        row: Row::CatchUp,
        work: "3 nodes: a follower that was away catches up",
        broker: format!("{mb_per_s:.0} MB/s of {mb:.0} MB"),
        bare: way,
        ratio: String::new(),
        target: String::new(),
        verdict: Verdict::None,
        data: json!({"mb_per_s": mb_per_s, "payload_mb": mb, "catch_ups": runs}),
    })
}

async fn catch_up(messages: u64) -> Result<CatchUp, Failure> {
    let mut cluster = super::start(&ServerOptions::disk()).await?;
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let status = cluster.terminate(follower);
    if !status.success() {
        return Err(format!("a follower that was stopped ended with {status}").into());
    }
    let address = cluster.node(leader).messaging();
    tokio::time::timeout(WITHIN, fill(address, messages)).await??;
    let stored = connect(address).await.look(QUEUE).await.ready;
    if stored != messages {
        return Err(format!("{messages} messages were written and {stored} are ready").into());
    }
    let last = queue_index(cluster.node(leader), "last_index").ok_or("the leader has no status")?;
    let logged_before = cluster.node(follower).log().len();
    let started = Instant::now();
    cluster.start_node(follower);
    while queue_index(cluster.node(follower), "applied_index").is_none_or(|applied| applied < last) {
        if started.elapsed() > WITHIN {
            return Err(format!("the follower has not caught up within {WITHIN:?}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let log = cluster.node(follower).log();
    Ok(CatchUp {
        mb_per_s: megabytes(messages) / seconds,
        seconds,
        by_snapshot: log
            .get(logged_before..)
            .is_some_and(|new| new.contains(SNAPSHOT_LOGGED)),
    })
}

/// A place in the log of the queue plane, if the node answers.
fn queue_index(node: &ClusterNode, which: &str) -> Option<u64> {
    let status = node.status()?;
    let groups = status["cluster"]["groups"].as_array()?;
    let queue = groups.iter().find(|group| group["name"] == QUEUE_GROUP)?;
    queue[which].as_u64()
}

fn megabytes(messages: u64) -> f64 {
    (messages * PAYLOAD_BYTES as u64) as f64 / 1e6
}
