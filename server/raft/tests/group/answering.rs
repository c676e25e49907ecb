//! What is answered before a majority has it, and what only when more than a majority has.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::{Cluster, DEADLINE, Node};
use super::support::{Adder, add};
use boltq_core::{LogIndex, NodeId};
use boltq_raft::{Aftermath, Early, Group, GroupConfig, InSyncError, ProposeError};
use parking_lot::Mutex;
use tokio::time::timeout;

type Outcome = Result<Vec<u64>, ProposeError>;

/// Every outcome that came after its answer.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Outcome>>>);

impl Notes {
    fn aftermath(&self) -> Aftermath<u64> {
        let notes = self.0.clone();
        Box::new(move |outcome| notes.lock().push(outcome))
    }

    async fn next(&self) -> Outcome {
        let noted = async {
            loop {
                if let Some(outcome) = self.0.lock().pop() {
                    return outcome;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(DEADLINE, noted).await.expect("an outcome")
    }
}

async fn early(group: &Group<Adder>, number: u64, early: Early, notes: &Notes) -> Result<(), ProposeError> {
    let admitted = group.admit(add(&[number])).await.unwrap();
    let answer = group.propose_early(admitted, early, notes.aftermath());
    timeout(DEADLINE, answer).await.expect("an answer")
}

/// Nobody stands for election while the test looks.
fn patient(config: &mut GroupConfig) {
    config.election = (Duration::from_secs(60), Duration::from_secs(90));
}

/// As [`patient`], and answers are to mean three voters.
fn all_three(config: &mut GroupConfig) {
    config.min_in_sync = 3;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_answers_what_its_log_has_and_not_what_nobody_else_has() {
    let cluster = Cluster::start_with(3, 0, patient).await;
    let leader = &cluster.leader().await.group;
    cluster.mesh.isolate(NodeId(1));
    let notes = Notes::default();
    early(leader, 1, Early::Logged, &notes).await.unwrap();
    let decided = timeout(Duration::from_millis(500), leader.propose(add(&[10]))).await;
    assert!(decided.is_err(), "{decided:?}");
    early(leader, 100, Early::Accepted, &notes).await.unwrap();
    assert!(notes.0.lock().is_empty());
    cluster.mesh.heal();
    cluster.all_have(111).await;
    let mut outcomes = [notes.next().await.unwrap(), notes.next().await.unwrap()];
    outcomes.sort_unstable();
    assert_eq!(outcomes, [[1], [111]]);
}

/// The entry that was answered, and that nobody else has seen.
async fn answered_by_a_leader_alone<'c>(cluster: &'c Cluster, notes: &Notes) -> &'c Node {
    loop {
        let leader = cluster.leader().await;
        cluster.mesh.isolate(leader.id);
        // One that is cut off for long takes nothing.
        if early(&leader.group, 1_000, Early::Logged, notes).await.is_ok() {
            return leader;
        }
        cluster.mesh.heal();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_a_leader_had_that_was_cut_off_is_lost_and_that_is_told() {
    let cluster = Cluster::start(3, 0).await;
    let notes = Notes::default();
    let old = answered_by_a_leader_alone(&cluster, &notes).await;
    let new = cluster.leader_but(Some(old.id)).await;
    new.group.propose(add(&[1])).await.unwrap();
    cluster.mesh.heal();
    cluster.all_have(1).await;
    let outcome = notes.next().await;
    assert!(matches!(outcome, Err(ProposeError::Stopped)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_refuses_what_is_to_be_logged_and_loses_what_it_only_accepted() {
    let cluster = Cluster::start_with(3, 0, patient).await;
    let notes = Notes::default();
    let follower = &cluster.nodes[1].group;
    let refused = early(follower, 1, Early::Logged, &notes).await;
    assert!(matches!(refused, Err(ProposeError::NotLeader { .. })), "{refused:?}");
    assert!(notes.0.lock().is_empty());
    early(follower, 1, Early::Accepted, &notes).await.unwrap();
    let outcome = notes.next().await;
    assert!(matches!(outcome, Err(ProposeError::NotLeader { .. })), "{outcome:?}");
}

async fn placed(group: &Group<Adder>, number: u64) -> LogIndex {
    let admitted = group.admit(add(&[number])).await.unwrap();
    let placed = timeout(DEADLINE, group.propose_placed(admitted)).await;
    placed.expect("an outcome").unwrap().1
}

async fn enough_answer(group: &Group<Adder>, enough: bool) {
    let changed = async {
        while group.enough_answer().is_ok() != enough {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, changed).await.expect("voters come and go");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_of_three_are_waited_for_and_a_learner_makes_up_for_none() {
    let mut cluster = Cluster::start_with(3, 1, all_three).await;
    let leader = cluster.leader().await;
    let (id, group) = (leader.id, leader.group.clone());
    let index = placed(&group, 1).await;
    timeout(DEADLINE, group.in_sync(index)).await.unwrap().unwrap();
    let gone = (1..=3).map(NodeId).find(|other| *other != id).unwrap();
    cluster.kill(gone).await;
    // A majority goes on, and nothing but the answer waits.
    let index = placed(&group, 10).await;
    let waits = timeout(Duration::from_millis(300), group.in_sync(index)).await;
    assert!(waits.is_err(), "{waits:?}");
    assert_eq!(*cluster.node(id.0).adder.sum.lock(), 11);
    enough_answer(&group, false).await;
    let refused = group.enough_answer().unwrap_err();
    assert!(
        matches!(
            refused,
            InSyncError::TooFewAnswer {
                answering: 2,
                wanted: 3
            }
        ),
        "{refused}"
    );
    cluster.restart(gone).await;
    timeout(DEADLINE, group.in_sync(index)).await.unwrap().unwrap();
    enough_answer(&group, true).await;
    cluster.all_have(11).await;
}

/// Not soon after, but when it is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_logs_as_are_wanted_have_what_is_in_sync() {
    let mut cluster = Cluster::start_with(5, 1, |config| config.min_in_sync = 4).await;
    let (id, group) = {
        let leader = cluster.leader().await;
        (leader.id, leader.group.clone())
    };
    let followers: Vec<NodeId> = (1..=5).map(NodeId).filter(|other| *other != id).collect();
    for (round, gone) in followers.iter().take(2).enumerate() {
        for number in 1..=50 {
            let index = placed(&group, number).await;
            timeout(DEADLINE, group.in_sync(index)).await.unwrap().unwrap();
            let voters = cluster.nodes.iter().filter(|node| node.id != NodeId(6));
            let have = voters.filter(|node| {
                node.group
                    .log()
                    .raft_state()
                    .last
                    .is_some_and(|last| last.index >= index)
            });
            assert!(have.count() >= 4, "round {round}, number {number}");
        }
        // Four are left, and then three.
        cluster.kill(*gone).await;
    }
    enough_answer(&group, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_more_than_a_majority_is_told_when_the_leader_changes() {
    let mut cluster = Cluster::start_with(3, 0, all_three).await;
    let leader = cluster.leader().await;
    let (id, group) = (leader.id, leader.group.clone());
    let others: Vec<NodeId> = (1..=3).map(NodeId).filter(|other| *other != id).collect();
    cluster.kill(others[0]).await;
    let index = placed(&group, 1).await;
    let waits = tokio::spawn({
        let group = group.clone();
        async move { group.in_sync(index).await }
    });
    // Until the task waits, a change would not be one.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let moved = async {
        while cluster.node(id.0).adder.leads() {
            group.hand_over(others[1]).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(DEADLINE, moved).await.expect("the leader changes");
    let told = timeout(DEADLINE, waits).await.unwrap().unwrap();
    assert!(matches!(told, Err(InSyncError::Unknown { wanted: 3 })), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_is_nothing_to_wait_for() {
    let mut cluster = Cluster::start_with(3, 0, |config| config.min_in_sync = 2).await;
    let leader = cluster.leader().await;
    let (id, group) = (leader.id, leader.group.clone());
    let gone = (1..=3).map(NodeId).find(|other| *other != id).unwrap();
    cluster.kill(gone).await;
    let index = placed(&group, 1).await;
    timeout(DEADLINE, group.in_sync(index)).await.unwrap().unwrap();
    group.enough_answer().unwrap();
}
