//! What a leader may do without asking anybody.

use std::time::Duration;

use super::cluster::Cluster;
use super::support::add;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_votes_no_more_has_to_ask() {
    let cluster = Cluster::start(3, 0).await;
    let leader = cluster.leader().await;
    leader.group.propose(add(&[1])).await.unwrap();
    let holds = async {
        while !leader.group.holds_lease() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), holds).await.unwrap();
    // It goes on until it has found another one, which does not wait until this one's lease is over.
    leader.group.demote(leader.id).await.unwrap();
    assert!(!leader.group.holds_lease());
}
