//! A node that joins when the first entries are gone.

use std::time::Duration;

use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Cluster, ServerOptions, eventually, http};

const MIB: usize = 1 << 20;
/// More than the 32 MiB of entries that are kept for members that were away.
const MESSAGES: usize = 44;

fn metric(cluster: &Cluster, node: usize, name: &str) -> Option<f64> {
    let metrics = http::get(cluster.node(node).admin(), "/metrics").ok()?;
    let value = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    metrics.text().lines().find_map(value)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_gets_a_snapshot_which_metrics_tell_of_on_both_sides() {
    let options = ServerOptions::disk().set("cluster.snapshot_threshold", 8);
    let mut cluster = Cluster::start_with(1, &options);
    let mut client = connect(cluster.node(0).messaging()).await;
    for _ in 0..MESSAGES {
        client.put("big", message(vec![7; MIB])).await;
    }
    let node = cluster.add(false);
    cluster.await_settled();
    let sent = |name: &str| format!("boltq_raft_{name}{{group=\"queue\",direction=\"sent\"}}");
    let installed = |name: &str| format!("boltq_raft_{name}{{group=\"queue\",direction=\"installed\"}}");
    eventually(Duration::from_secs(60), "the snapshot has arrived", || {
        let has = metric(&cluster, 0, &sent("snapshots_total"))? >= 1.0;
        has.then_some(())
    });
    assert!(metric(&cluster, node, &installed("snapshots_total")).unwrap() >= 1.0);
    for (at, name) in [
        (0, sent("snapshot_bytes_total")),
        (node, installed("snapshot_bytes_total")),
    ] {
        let bytes = metric(&cluster, at, &name).unwrap();
        // What came after the last checkpoint follows as entries.
        assert!(bytes > (30 * MIB) as f64, "{name} {bytes}");
    }
    for (at, name) in [
        (0, sent("snapshot_seconds_total")),
        (node, installed("snapshot_seconds_total")),
    ] {
        assert!(metric(&cluster, at, &name).unwrap() > 0.0, "{name}");
    }
    let stats = http::get(cluster.node(node).admin(), "/stats?linearizable=true").unwrap();
    assert_eq!(stats.json()["Queues"]["big"], MESSAGES);
}
