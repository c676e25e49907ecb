//! A group on its own node, over a real log: proposals, outcomes, checkpoints, restarts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::support::{Adder, add};
use boltq_core::{GroupId, Millis, NodeId};
use boltq_log::{Log, LogConfig, OpenError, OsFiles, Storage};
use boltq_raft::{Early, Group, GroupConfig, Joint, NoPeers, Proposal, ProposeError};
use bytes::BufMut;

pub(super) const GROUP: GroupId = GroupId(1);

pub(super) async fn open(storage: Storage, config: impl FnOnce(&mut GroupConfig)) -> (Log, Arc<Adder>, Group<Adder>) {
    let opened = tokio::time::timeout(Duration::from_secs(20), open_log(storage));
    let log = opened.await.expect("nobody has the log");
    let adder = Arc::new(Adder::default());
    let mut group_config = GroupConfig::new(GROUP, NodeId(7), || Millis(1));
    config(&mut group_config);
    let group = Group::open(group_config, log.group(GROUP), adder.clone(), Arc::new(NoPeers))
        .await
        .unwrap();
    adder.led().await;
    (log, adder, group)
}

/// What a group was doing when it was stopped may have the log for a moment more.
async fn open_log(storage: Storage) -> Log {
    let config = || LogConfig {
        storage: storage.clone(),
        ..LogConfig::default()
    };
    loop {
        match Log::open(config(), Arc::new(OsFiles)) {
            Err(OpenError::Locked { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            opened => return opened.unwrap(),
        }
    }
}

pub(super) fn disk(dir: &Path) -> Storage {
    Storage::Disk { dir: dir.to_owned() }
}

#[tokio::test]
async fn outcomes_come_back_in_the_order_of_the_commands() {
    let (_log, _adder, group) = open(Storage::Memory, |_| ()).await;
    assert_eq!(group.propose(add(&[1, 2, 3])).await.unwrap(), [1, 3, 6]);
    assert_eq!(group.propose(add(&[])).await.unwrap(), Vec::<u64>::new());
    assert_eq!(group.propose(add(&[4])).await.unwrap(), [10]);
    group.shutdown().await;
}

/// An entry that the log refuses would end the group.
#[tokio::test]
async fn a_proposal_that_fits_into_no_entry_is_refused_to_its_caller_alone() {
    let (_log, _adder, group) = open(Storage::Memory, |_| ()).await;
    let mut huge = Proposal::new();
    huge.begin().put_bytes(0, 65 << 20);
    let error = group.propose(huge).await.unwrap_err();
    assert!(
        matches!(error, ProposeError::TooLarge { bytes, .. } if bytes > 65 << 20),
        "{error}"
    );
    assert_eq!(group.propose(add(&[1, 2])).await.unwrap(), [1, 3]);
    group.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_get_their_own_outcomes() {
    let (_log, adder, group) = open(Storage::Memory, |config| config.entry_bytes_max = 100).await;
    let callers = (0..200).map(|_| {
        let group = group.clone();
        tokio::spawn(async move {
            let outcomes = group.propose(add(&[1, 1])).await.unwrap();
            assert_eq!(outcomes[0] + 1, outcomes[1]);
            outcomes[1]
        })
    });
    let mut sums = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        sums.push(caller.await.unwrap());
    }
    sums.sort_unstable();
    assert_eq!(sums, (1..=200).map(|n| n * 2).collect::<Vec<u64>>());
    assert_eq!(*adder.sum.lock(), 400);
    group.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joined_commands_give_each_caller_its_own_part() {
    let (_log, adder, group) = open(Storage::Memory, |_| ()).await;
    let callers = (0..200).map(|_| {
        let group = group.clone();
        tokio::spawn(async move {
            let mut proposal = Proposal::new();
            proposal.begin().put_u32_le(2);
            proposal.allow_joining(Joint {
                count_at: 0,
                items_at: 4,
                count: 2,
            });
            group.propose(proposal).await.unwrap()
        })
    });
    let mut sums = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        sums.extend(caller.await.unwrap());
    }
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), 200, "{sums:?}");
    assert_eq!(*adder.sum.lock(), 400);
    let entries = group.status().applied_entries;
    assert!(entries < 200, "{entries} entries for 200 commands");
    group.shutdown().await;
}

#[tokio::test]
async fn state_survives_restarts_with_and_without_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut sum = 0;
    for round in 0..6 {
        let (log, adder, group) = open(disk(dir.path()), |_| ()).await;
        assert_eq!(*adder.sum.lock(), sum, "round {round}");
        sum = group.propose(add(&[1, 10])).await.unwrap()[1];
        if round % 2 == 0 {
            group.checkpoint().await;
            sum = group.propose(add(&[100])).await.unwrap()[0];
        }
        group.shutdown().await;
        log.close();
    }
    assert_eq!(sum, 366);
}

#[tokio::test]
async fn checkpoints_are_taken_by_bytes_and_purge_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _adder, group) = open(disk(dir.path()), |config| config.checkpoint_interval_bytes = 4 << 10).await;
    for _ in 0..500 {
        group.propose(add(&[1; 10])).await.unwrap();
    }
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while log.group(GROUP).raft_state().purged.is_none_or(|id| id.index.0 < 100) {
        assert!(std::time::Instant::now() < deadline, "{:?}", group.status());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(group.status().checkpoints > 1);
    group.shutdown().await;
    log.close();
    let (log, adder, group) = open(disk(dir.path()), |_| ()).await;
    assert_eq!(*adder.sum.lock(), 5_000);
    group.shutdown().await;
    log.close();
}

#[tokio::test]
async fn a_large_state_is_written_less_often() {
    let dir = tempfile::tempdir().unwrap();
    let small = |config: &mut GroupConfig| config.checkpoint_interval_bytes = 4 << 10;
    let (log, adder, group) = open(disk(dir.path()), small).await;
    adder.padding.store(256 << 10, Ordering::Relaxed);
    group.propose(add(&[1])).await.unwrap();
    group.checkpoint().await;
    let checkpoints = group.status().checkpoints;
    // Many times 4 KiB of log, and far from four times the state.
    for _ in 0..300 {
        group.propose(add(&[1; 10])).await.unwrap();
    }
    assert_eq!(group.status().checkpoints, checkpoints);
    group.shutdown().await;
    log.close();
    // It is known after a start, too.
    let (log, adder, group) = open(disk(dir.path()), small).await;
    for _ in 0..300 {
        group.propose(add(&[1; 10])).await.unwrap();
    }
    assert_eq!((group.status().checkpoints, *adder.sum.lock()), (0, 6_001));
    // And when it is small again, the next one is soon due.
    adder.padding.store(0, Ordering::Relaxed);
    group.checkpoint().await;
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while group.status().checkpoints < 2 {
        assert!(std::time::Instant::now() < deadline, "{:?}", group.status());
        group.propose(add(&[1; 10])).await.unwrap();
    }
    group.shutdown().await;
    log.close();
}

#[tokio::test]
async fn callers_beyond_the_budget_wait_and_are_served() {
    let (_log, adder, group) = open(Storage::Memory, |config| config.proposal_bytes_max = 512).await;
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let group = group.clone();
            tokio::spawn(async move { group.propose(add(&[1; 40])).await.unwrap() })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(*adder.sum.lock(), 2_000);
    group.shutdown().await;
}

#[tokio::test]
async fn an_entry_that_cannot_be_applied_stops_the_group_and_tells_the_callers() {
    let (_log, adder, group) = open(Storage::Memory, |_| ()).await;
    assert!(matches!(group.propose(add(&[0])).await, Err(ProposeError::Stopped)));
    let reason = tokio::time::timeout(Duration::from_secs(5), group.failed())
        .await
        .unwrap();
    assert!(reason.contains("zero"), "{reason}");
    assert!(group.propose(add(&[1])).await.is_err());
    assert_eq!(*adder.sum.lock(), 0);
    group.shutdown().await;
}

#[tokio::test]
async fn proposals_after_the_end_are_refused() {
    let (_log, _adder, group) = open(Storage::Memory, |_| ()).await;
    group.shutdown().await;
    assert!(matches!(group.propose(add(&[1])).await, Err(ProposeError::Stopped)));
}

/// What cannot be synced is not acknowledged, and nothing is after it: the group ends instead of trying again.
#[tokio::test]
async fn a_failed_sync_stops_the_group() {
    let files = boltq_log::testing::SimFiles::new();
    let storage = Storage::Disk {
        dir: "/simulated".into(),
    };
    let config = LogConfig {
        storage,
        ..LogConfig::default()
    };
    let log = Log::open(config, Arc::new(files.clone())).unwrap();
    let adder = Arc::new(Adder::default());
    let group_config = GroupConfig::new(GROUP, NodeId(7), || Millis(1));
    let group = Group::open(group_config, log.group(GROUP), adder.clone(), Arc::new(NoPeers))
        .await
        .unwrap();
    adder.led().await;
    group.propose(add(&[1])).await.unwrap();
    files.fail_sync(1);
    let admitted = group.admit(add(&[1])).await.unwrap();
    let logged = group.propose_early(admitted, Early::Logged, Box::new(|outcome| panic!("{outcome:?}")));
    assert!(matches!(logged.await, Err(ProposeError::Stopped)));
    assert!(matches!(group.propose(add(&[1])).await, Err(ProposeError::Stopped)));
    let reason = tokio::time::timeout(Duration::from_secs(5), group.failed())
        .await
        .unwrap();
    assert!(reason.contains("sync"), "{reason}");
    assert!(group.propose(add(&[1])).await.is_err());
    assert_eq!(*adder.sum.lock(), 1);
    group.shutdown().await;
}

/// Room counts what is on its way, not what a slow caller has not looked at.
#[tokio::test]
async fn room_is_given_back_when_the_outcome_is_known_and_not_when_it_is_looked_at() {
    let (_log, _adder, group) = open(Storage::Memory, |config| config.proposal_bytes_max = 1024).await;
    let large = || add(&[1; 64]);
    let admitted = group.admit(large()).await.unwrap();
    let mut outcome = Box::pin(group.propose_admitted(admitted));
    assert!(futures_util::poll!(&mut outcome).is_pending());
    let others = async {
        for _ in 0..10 {
            group.propose(large()).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(10), others).await.unwrap();
    assert_eq!(outcome.await.unwrap().len(), 64);
    group.shutdown().await;
}

/// A node that is killed again and again soon after its start never gets to a checkpoint that is due.
#[tokio::test]
async fn files_of_many_short_lives_go() {
    const LIVES: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let files = || {
        let names = std::fs::read_dir(dir.path()).unwrap().flatten();
        names
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("wal-"))
            .count()
    };
    for life in 1..=LIVES {
        let (log, _adder, group) = open(disk(dir.path()), |_| ()).await;
        group.propose(add(&[1])).await.unwrap();
        group.shutdown().await;
        drop((group, log));
        assert!(life < LIVES || files() > 16, "{}", files());
    }
    let (_log, adder, group) = open(disk(dir.path()), |_| ()).await;
    let few = async {
        while files() > 16 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), few)
        .await
        .expect("files go");
    assert_eq!(*adder.sum.lock(), LIVES as u64);
    group.shutdown().await;
}
