//! For how long nobody can write when the leader is killed.
//!
//! A gap is the longest time between two acknowledgements to one publisher in lock-step, from just before the kill until
//! messages are acknowledged under the next leader. The publisher goes from node to node, as a client with a list of
//! addresses does, so what it needs to find a node that takes its message is part of the gap.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use boltq_proto::queue::v1::PublishRequest;
use serde_json::json;
use tokio::time::timeout;

use crate::bench::load::{AbortOnDrop, Failure};
use crate::bench::options::BenchOptions;
use crate::bench::report::{Line, Verdict, median, ms};
use crate::bench::rows::Row;
use crate::bench::{PAYLOAD_BYTES, QUEUE};
use crate::harness::grpc::{QueueClient, channel, message};
use crate::harness::{Cluster, ServerOptions};

const MEDIAN_MAX: Duration = Duration::from_millis(1_500);
const WORST_MAX: Duration = Duration::from_secs(4);
/// A node that is silent for so long is left for the next one.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
const BEFORE_NEXT_NODE: Duration = Duration::from_millis(10);
/// Of steady writing before each kill.
const BEFORE_KILL: Duration = Duration::from_millis(500);
const PROGRESS_WITHIN: Duration = Duration::from_secs(30);

pub(super) async fn line(options: &BenchOptions) -> Result<Line, Failure> {
    let mut cluster = super::start(&ServerOptions::disk()).await?;
    let mut nodes = cluster.messaging();
    nodes.rotate_left(cluster.leader());
    let publisher = Publisher::start(nodes);
    let mut gaps = Vec::new();
    for _ in 0..options.kills() {
        gaps.push(kill_leader(&mut cluster, &publisher).await?);
    }
    let seconds: Vec<f64> = gaps.iter().map(Duration::as_secs_f64).collect();
    let middle = Duration::from_secs_f64(median(seconds.iter().copied()));
    let worst = gaps.iter().max().copied().unwrap_or_default();
    Ok(Line {
        row: Row::Failover,
        work: "3 nodes: kill -9 of the leader, gap",
        broker: format!("{} / {}", ms(middle), ms(worst)),
        bare: String::new(),
        ratio: format!("{} kills", gaps.len()),
        target: format!("median < {}, worst < {}", ms(MEDIAN_MAX), ms(WORST_MAX)),
        verdict: Verdict::of(middle < MEDIAN_MAX && worst < WORST_MAX),
        data: json!({"median_s": middle.as_secs_f64(), "worst_s": worst.as_secs_f64(), "gaps_s": seconds}),
    })
}

/// Kills it, notes the gap, and brings it back.
async fn kill_leader(cluster: &mut Cluster, publisher: &Publisher) -> Result<Duration, Failure> {
    publisher.await_progress().await?;
    tokio::time::sleep(BEFORE_KILL).await;
    let leader = cluster.leader();
    publisher.acknowledged().longest_gap = Duration::ZERO;
    cluster.kill(leader);
    // An answer of the dead leader that was under way is no progress.
    cluster.leader();
    publisher.await_progress().await?;
    let gap = publisher.acknowledged().longest_gap;
    cluster.start_node(leader);
    cluster.await_settled();
    Ok(gap)
}

/// Publishes until it is dropped.
struct Publisher {
    acknowledged: Arc<Mutex<Acknowledged>>,
    _task: AbortOnDrop,
}

struct Acknowledged {
    last: Instant,
    longest_gap: Duration,
}

impl Publisher {
    fn start(nodes: Vec<SocketAddr>) -> Self {
        let acknowledged = Arc::new(Mutex::new(Acknowledged {
            last: Instant::now(),
            longest_gap: Duration::ZERO,
        }));
        let task = tokio::spawn(publish(nodes, Arc::clone(&acknowledged)));
        Self {
            acknowledged,
            _task: AbortOnDrop(task.abort_handle()),
        }
    }

    fn acknowledged(&self) -> MutexGuard<'_, Acknowledged> {
        lock(&self.acknowledged)
    }

    /// Waits for an acknowledgement that has yet to come.
    async fn await_progress(&self) -> Result<(), Failure> {
        let started = Instant::now();
        while self.acknowledged().last <= started {
            if started.elapsed() > PROGRESS_WITHIN {
                return Err(format!("nothing was acknowledged for {PROGRESS_WITHIN:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

async fn publish(nodes: Vec<SocketAddr>, acknowledged: Arc<Mutex<Acknowledged>>) {
    for node in nodes.iter().cycle() {
        publish_to(*node, &acknowledged).await;
        tokio::time::sleep(BEFORE_NEXT_NODE).await;
    }
}

/// Until the node does not answer, or says that it cannot.
async fn publish_to(node: SocketAddr, acknowledged: &Mutex<Acknowledged>) {
    let Ok(Ok(channel)) = timeout(CONNECTED_WITHIN, channel(node)).await else {
        return;
    };
    let mut client = QueueClient::new(channel);
    let request = PublishRequest {
        queue: QUEUE.to_owned(),
        message: Some(message(vec![b'x'; PAYLOAD_BYTES])),
    };
    while let Ok(Ok(_)) = timeout(ANSWERED_WITHIN, client.publish(request.clone())).await {
        let now = Instant::now();
        let mut acknowledged = lock(acknowledged);
        acknowledged.longest_gap = acknowledged.longest_gap.max(now - acknowledged.last);
        acknowledged.last = now;
    }
}

fn lock(acknowledged: &Mutex<Acknowledged>) -> MutexGuard<'_, Acknowledged> {
    acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
}
