//! A replica that takes over a snapshot does so under those who listen there.

use std::sync::mpsc;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::{Cluster, ServerOptions, eventually, http};
use serde_json::json;

use super::calls::{Calls, PATIENCE};
use super::leader_change::{publish_megabytes, snapshots_installed};

/// What was published meanwhile may have passed it by; what comes then comes.
#[tokio::test(flavor = "multi_thread")]
async fn who_listens_at_a_node_that_takes_over_a_snapshot_hears_what_comes_after_it() {
    let options = ServerOptions::disk().set("cluster.snapshot_threshold", 8);
    let mut cluster = Cluster::start_with(3, &options);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut listener = BinaryClient::connect(cluster.node(follower).messaging());
    listener.set_timeout(10 * PATIENCE);
    listener.subscribe("t", "live", false);
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(frame) = listener.receive() {
            if told.send(frame.ok()["payload"].clone()).is_err() {
                return;
            }
        }
    });
    let before = snapshots_installed(&cluster, follower);
    cluster.pause(follower);
    publish_megabytes(cluster.node(leader).messaging(), 44).await;
    cluster.resume(follower);
    eventually(PATIENCE, "a snapshot is taken over", || {
        (snapshots_installed(&cluster, follower) > before).then_some(())
    });
    let admin = cluster.node(follower).admin();
    let body = json!({"topic": "t", "payload": "after"}).to_string();
    eventually(PATIENCE, "the listener hears of it", || {
        // Passed on to whoever leads.
        http::request(admin, "POST", "/publish/topic", &[], body.as_bytes()).ok()?;
        heard.try_iter().any(|payload| payload == "after").then_some(())
    });
}
