//! What nodes of a cluster tell.

use std::time::Duration;

use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Cluster, eventually};

use super::collector::Collector;
use super::scrape::Scrape;
use super::traces::{CALLER, TRACE, one, publish, sampled, traced};

/// One cluster for all of it: starting one takes longer than asking.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_passed_on_are_counted_and_stay_in_their_traces_and_silent_nodes_are_known() {
    let collector = Collector::start().await;
    let mut cluster = Cluster::start_with(3, &traced(&collector.endpoint()));
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let scrape = |cluster: &Cluster, node: usize| Scrape::of(cluster.node(node).admin());
    let before = scrape(&cluster, follower).value("boltq_forward_total");

    let mut client = connect(cluster.node(follower).messaging()).await;
    publish(&mut client, "q", message("x"), &[("traceparent", &sampled())]).await;
    let delivery = client.take_one("q").await;
    assert_eq!(client.done(&[delivery]).await, 1);
    let told = collector.spans(3).await;
    let publish = one(&told, "publish q");
    assert_eq!(
        (publish.trace(), publish.parent()),
        (TRACE.to_owned(), CALLER.to_owned())
    );
    assert_eq!(one(&told, "deliver q").parent(), publish.id());
    assert_eq!(publish.resource["service.instance.id"], cluster.node(leader).name());
    let after = scrape(&cluster, follower);
    assert!(after.value("boltq_forward_total") >= before + 3.0);
    assert_eq!(after.value("boltq_forward_failed"), 0.0);
    // The leader has done it.
    let leading = scrape(&cluster, leader);
    assert_eq!(leading.value(r#"boltq_publish_seconds_count{door="grpc"}"#), 1.0);
    assert_eq!(leading.value(r#"boltq_queue_acked_total{queue="q"}"#), 1.0);
    assert_eq!(
        after.value(r#"boltq_queue_published_total{queue="q"}"#),
        1.0,
        "as on every node"
    );

    let silent = |cluster: &Cluster| scrape(cluster, leader).find("boltq_brokers_fenced");
    assert_eq!(silent(&cluster), Some(0.0));
    assert_eq!(leading.value("boltq_brokers_total"), 3.0);
    drop(client);
    cluster.kill(follower);
    eventually(Duration::from_secs(30), "the leader knows who is silent", || {
        silent(&cluster).filter(|silent| *silent == 1.0)
    });
}
