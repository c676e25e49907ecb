//! Checkpoints beside the work of a group: what they hold up, when the next one is due, and when entries go.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::alone::{GROUP, disk, open};
use super::support::add;

const DEADLINE: Duration = Duration::from_secs(30);

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applying_goes_on_while_the_state_of_a_checkpoint_is_encoded() {
    let dir = tempfile::tempdir().unwrap();
    let (log, adder, group) = open(disk(dir.path()), |_| ()).await;
    group.propose(add(&[1, 2])).await.unwrap();
    let shut = adder.before_encoding.shut();
    let checkpoint = tokio::spawn({
        let group = group.clone();
        async move { group.checkpoint().await }
    });
    until("the state is captured", || adder.before_encoding.was_reached()).await;
    let later = tokio::time::timeout(DEADLINE, group.propose(add(&[10]))).await;
    assert_eq!(later.expect("it is applied").unwrap(), [13]);
    assert!(log.group(GROUP).checkpoint().is_none());
    drop(shut);
    checkpoint.await.unwrap();
    let written = log.group(GROUP).checkpoint().unwrap().state;
    assert_eq!(written, 3u64.to_le_bytes()[..]);
    group.shutdown().await;
    log.close();
    let (log, adder, group) = open(disk(dir.path()), |_| ()).await;
    assert_eq!(*adder.sum.lock(), 13);
    group.shutdown().await;
    log.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_applied_while_a_checkpoint_is_written_makes_no_second_one_due() {
    let dir = tempfile::tempdir().unwrap();
    let small = |config: &mut boltq_raft::GroupConfig| config.checkpoint_interval_bytes = 32 << 10;
    let (log, adder, group) = open(disk(dir.path()), small).await;
    let shut = adder.before_encoding.shut();
    while !adder.before_encoding.was_reached() {
        group.propose(add(&[1; 20])).await.unwrap();
    }
    for _ in 0..10 {
        group.propose(add(&[1])).await.unwrap();
    }
    drop(shut);
    until("entries are given up", || {
        log.group(GROUP).raft_state().purged.is_some()
    })
    .await;
    for _ in 0..10 {
        group.propose(add(&[1])).await.unwrap();
    }
    group.checkpoint().await;
    assert_eq!(adder.captures.load(Ordering::Relaxed), 2);
    group.shutdown().await;
    log.close();
}

/// The machine of openraft is at an entry when the checkpoint is there, and hears of it too late. Nothing comes afterwards that would
/// make the next checkpoint due.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn entries_are_given_up_later_if_openraft_heard_of_the_checkpoint_too_late() {
    let dir = tempfile::tempdir().unwrap();
    let (log, adder, group) = open(disk(dir.path()), |_| ()).await;
    group.propose(add(&[1, 2])).await.unwrap();
    let encoding = adder.before_encoding.shut();
    let checkpoint = tokio::spawn({
        let group = group.clone();
        async move { group.checkpoint().await }
    });
    until("the state is captured", || adder.before_encoding.was_reached()).await;
    let applying = adder.before_applying.shut();
    let proposal = tokio::spawn({
        let group = group.clone();
        async move { group.propose(add(&[10])).await.unwrap() }
    });
    until("the entry is being applied", || adder.before_applying.was_reached()).await;
    drop(encoding);
    checkpoint.await.unwrap();
    let saved = log.group(GROUP).checkpoint().unwrap().applied.index;
    assert_eq!(log.group(GROUP).raft_state().purged, None);
    drop(applying);
    assert_eq!(proposal.await.unwrap(), [13]);
    until("entries are given up", || {
        let purged = log.group(GROUP).raft_state().purged;
        purged.is_some_and(|purged| purged.index == saved)
    })
    .await;
    assert_eq!(group.status().checkpoints, 1);
    group.shutdown().await;
    log.close();
}
