//! Calls that were passed on to a leader that goes away before it answers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use boltq_proto::queue::v1::PublishRequest;
use boltq_tests::harness::grpc::{connect, message, reason};
use boltq_tests::harness::{Cluster, eventually};

use super::load::{QUEUE, drain};

const PUBLISHERS: u64 = 8;

/// Publishes one number after the other until that fails, and returns the one that did, with the reason.
async fn publish_until_failed(address: SocketAddr, first: u64, published: Arc<AtomicU64>) -> (u64, String) {
    let mut client = connect(address).await;
    let mut number = first;
    loop {
        let request = PublishRequest {
            queue: QUEUE.to_owned(),
            message: Some(message(number.to_string())),
        };
        match client.publish(request).await {
            Ok(_) => published.fetch_add(1, Ordering::Relaxed),
            Err(status) => return (number, reason(&status)),
        };
        number += 1;
    }
}

#[test]
fn what_a_killed_leader_may_have_stored_is_not_called_refused() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let address = cluster.node(cluster.follower()).messaging();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let published = Arc::new(AtomicU64::new(0));
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|publisher| runtime.spawn(publish_until_failed(address, publisher << 32, published.clone())))
        .collect();
    eventually(Duration::from_secs(30), "publishers are at work", || {
        (published.load(Ordering::Relaxed) > 10 * PUBLISHERS).then_some(())
    });
    cluster.kill(leader);
    let failed: Vec<(u64, String)> = publishers
        .into_iter()
        .map(|publisher| runtime.block_on(publisher).unwrap())
        .collect();
    cluster.start_node(leader);
    cluster.await_settled();

    let reasons: BTreeSet<&str> = failed.iter().map(|(_, reason)| reason.as_str()).collect();
    assert!(reasons.contains("LEADER_LOST"), "{failed:?}");
    let known = ["LEADER_LOST", "NOT_LEADER"];
    assert!(reasons.iter().all(|reason| known.contains(reason)), "{failed:?}");
    let stored: BTreeSet<u64> = drain(&cluster).into_iter().collect();
    for (number, reason) in &failed {
        assert!(
            reason != "NOT_LEADER" || !stored.contains(number),
            "{number} was stored"
        );
    }
}
