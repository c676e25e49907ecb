//! Groups of several nodes in one process, over a network that can be cut.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::support::{Adder, add};
use boltq_core::{GroupId, Millis, NodeId};
use boltq_log::testing::HangingFiles;
use boltq_log::{FileLayer, Log, LogConfig, OpenError, OsFiles, Storage};
use boltq_raft::{Group, GroupConfig, Peer, ProposeError, Receiver, Transport, TransportError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;

const GROUP: GroupId = GroupId(1);
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Who is there, and between whom nothing passes, in that direction.
#[derive(Default)]
pub(crate) struct Mesh {
    nodes: Mutex<BTreeMap<NodeId, Arc<dyn Receiver>>>,
    cut: Mutex<BTreeSet<(NodeId, NodeId)>>,
    starved: Mutex<Option<NodeId>>,
    hanging: Mutex<Option<NodeId>>,
}

impl Mesh {
    pub(crate) fn isolate(&self, node: NodeId) {
        let others: Vec<NodeId> = self
            .nodes
            .lock()
            .keys()
            .copied()
            .filter(|other| *other != node)
            .collect();
        let mut cut = self.cut.lock();
        for other in others {
            cut.insert((node, other));
            cut.insert((other, node));
        }
    }

    pub(crate) fn cut_both_ways(&self, one: NodeId, other: NodeId) {
        self.cut.lock().extend([(one, other), (other, one)]);
    }

    /// It takes requests and does not answer.
    pub(crate) fn hang(&self, node: NodeId) {
        *self.hanging.lock() = Some(node);
    }

    /// Entries are lost on their way to this node, everything else passes.
    pub(crate) fn lose_entries(&self, to: NodeId) {
        *self.starved.lock() = Some(to);
    }

    pub(crate) fn heal(&self) {
        self.cut.lock().clear();
        *self.starved.lock() = None;
    }

    fn find(&self, from: NodeId, to: &Peer) -> Result<Arc<dyn Receiver>, TransportError> {
        let unreachable = |why: &str| TransportError::Unreachable {
            peer: to.clone(),
            why: why.to_owned(),
        };
        if self.cut.lock().contains(&(from, to.node)) {
            return Err(unreachable("cut"));
        }
        let receiver = self.nodes.lock().get(&to.node).cloned();
        receiver.ok_or_else(|| unreachable("not there"))
    }
}

/// Whether a request is an append that is more than a heartbeat, which has two bytes, a vote, two log ids and a count.
fn has_entries(request: &[u8]) -> bool {
    request.get(1) == Some(&1) && request.len() > 2 + 17 + 2 * 25 + 4
}

/// The network as one node has it.
struct Link {
    mesh: Arc<Mesh>,
    node: NodeId,
}

impl Transport for Link {
    fn call(
        &self,
        to: &Peer,
        _group: GroupId,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        let (mesh, node, peer) = (self.mesh.clone(), self.node, to.clone());
        Box::pin(async move {
            let receiver = mesh.find(node, &peer)?;
            if *mesh.hanging.lock() == Some(peer.node) {
                tokio::time::sleep(within).await;
                return Err(TransportError::TimedOut { peer });
            }
            if *mesh.starved.lock() == Some(peer.node) && has_entries(&request) {
                return Err(TransportError::TimedOut { peer });
            }
            let answer = tokio::time::timeout(within, receiver.receive(request)).await;
            mesh.find(
                peer.node,
                &Peer {
                    node,
                    address: String::new(),
                },
            )?;
            match answer {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(why)) => Err(TransportError::Refused { peer, why }),
                Err(_) => Err(TransportError::TimedOut { peer }),
            }
        })
    }

    fn send(
        &self,
        to: &Peer,
        _group: GroupId,
        chunks: BoxStream<'static, Result<Bytes, String>>,
        _within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        let (mesh, node, peer) = (self.mesh.clone(), self.node, to.clone());
        Box::pin(async move {
            let receiver = mesh.find(node, &peer)?;
            let answer = receiver.receive_chunks(chunks).await;
            answer.map_err(|why| TransportError::Refused { peer, why })
        })
    }
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) group: Group<Adder>,
    pub(crate) adder: Arc<Adder>,
    files: HangingFiles,
    _log: Log,
}

pub(crate) struct Cluster {
    pub(crate) mesh: Arc<Mesh>,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) nodes: Vec<Node>,
    configure: fn(&mut GroupConfig),
}

pub(crate) fn peer(node: NodeId) -> Peer {
    Peer {
        node,
        address: format!("node-{node}"),
    }
}

/// Calls of other nodes that are still on their way may hold the log of a node that was killed for a moment.
async fn open_log(config: &LogConfig, files: &HangingFiles) -> Log {
    let start = tokio::time::Instant::now();
    loop {
        match Log::open(config.clone(), Arc::new(files.clone())) {
            Err(OpenError::Locked { .. }) if start.elapsed() < DEADLINE => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            opened => return opened.unwrap(),
        }
    }
}

pub(crate) async fn open(mesh: &Arc<Mesh>, dir: &Path, id: NodeId, configure: fn(&mut GroupConfig)) -> Node {
    open_on(Arc::new(OsFiles), mesh, dir, id, configure).await
}

/// With a file system of its own.
pub(crate) async fn open_on(
    files: Arc<dyn FileLayer>,
    mesh: &Arc<Mesh>,
    dir: &Path,
    id: NodeId,
    configure: fn(&mut GroupConfig),
) -> Node {
    let storage = Storage::Disk {
        dir: dir.join(id.to_string()),
    };
    let config = LogConfig {
        storage,
        wal_file_bytes: 1 << 20,
        ..LogConfig::default()
    };
    let files = HangingFiles::new(files);
    let log = open_log(&config, &files).await;
    let adder = Arc::new(Adder::default());
    let mut config = GroupConfig::new(GROUP, id, || Millis(1));
    config.address = peer(id).address;
    config.found = id == NodeId(1);
    configure(&mut config);
    let link = Arc::new(Link {
        mesh: mesh.clone(),
        node: id,
    });
    let group = Group::open(config, log.group(GROUP), adder.clone(), link)
        .await
        .unwrap();
    mesh.nodes.lock().insert(id, Arc::new(group.clone()));
    Node {
        id,
        group,
        adder,
        files,
        _log: log,
    }
}

impl Cluster {
    /// Node 1 founds the group, the others join.
    pub(crate) async fn start(voters: u64, learners: u64) -> Self {
        Self::start_with(voters, learners, |_| ()).await
    }

    pub(crate) async fn start_with(voters: u64, learners: u64, configure: fn(&mut GroupConfig)) -> Self {
        let os: Vec<Arc<dyn FileLayer>> = (0..voters + learners).map(|_| Arc::new(OsFiles) as _).collect();
        Self::start_on(os, voters, configure).await
    }

    /// A node for each file system, of which the first ones are voters.
    pub(crate) async fn start_on(files: Vec<Arc<dyn FileLayer>>, voters: u64, configure: fn(&mut GroupConfig)) -> Self {
        let mut cluster = Self {
            mesh: Arc::default(),
            dir: tempfile::tempdir().unwrap(),
            nodes: Vec::new(),
            configure,
        };
        let count = files.len() as u64;
        for (id, files) in (1..).zip(files) {
            let node = open_on(files, &cluster.mesh, cluster.dir.path(), NodeId(id), configure).await;
            cluster.nodes.push(node);
        }
        cluster.node(1).adder.led().await;
        for id in 2..=count {
            cluster.node(1).group.add_learner(&peer(NodeId(id))).await.unwrap();
        }
        for id in 2..=voters {
            cluster.node(1).group.promote(NodeId(id)).await.unwrap();
        }
        cluster
    }

    pub(crate) fn node(&self, id: u64) -> &Node {
        self.nodes.iter().find(|node| node.id == NodeId(id)).unwrap()
    }

    pub(crate) async fn leader(&self) -> &Node {
        self.leader_but(None).await
    }

    /// Who leads now; nobody has the id 0.
    pub(crate) fn leader_id(&self) -> NodeId {
        let leader = self.nodes.iter().find(|node| node.adder.leads());
        leader.map_or(NodeId(0), |node| node.id)
    }

    /// A node other than `not` that leads.
    pub(crate) async fn leader_but(&self, not: Option<NodeId>) -> &Node {
        let found = async {
            loop {
                let leads = |node: &&Node| Some(node.id) != not && node.adder.leads();
                if let Some(node) = self.nodes.iter().find(leads) {
                    return node;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, found).await.expect("somebody leads")
    }

    pub(crate) async fn all_have(&self, sum: u64) {
        let same = async {
            while !self.nodes.iter().all(|node| *node.adder.sum.lock() == sum) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let outcome = tokio::time::timeout(DEADLINE, same).await;
        let sums: Vec<u64> = self.nodes.iter().map(|node| *node.adder.sum.lock()).collect();
        assert!(outcome.is_ok(), "{sums:?} instead of {sum}");
    }

    /// The node stops as if it were killed.
    pub(crate) async fn kill(&mut self, id: NodeId) {
        self.mesh.nodes.lock().remove(&id);
        let at = self.nodes.iter().position(|node| node.id == id).unwrap();
        self.nodes.remove(at).group.shutdown().await;
    }

    pub(crate) async fn restart(&mut self, id: NodeId) {
        let node = open(&self.mesh, self.dir.path(), id, self.configure).await;
        self.nodes.push(node);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_leader_answers_is_on_every_node() {
    let cluster = Cluster::start(3, 1).await;
    let leader = cluster.leader().await;
    for number in 1..=50 {
        leader.group.propose(add(&[number])).await.unwrap();
    }
    cluster.all_have(50 * 51 / 2).await;
    let follower = cluster.node(2);
    let refused = follower.group.propose(add(&[1])).await.unwrap_err();
    assert!(
        matches!(
            refused,
            ProposeError::NotLeader {
                leader: Some(NodeId(1))
            }
        ),
        "{refused}"
    );
    let voters: Vec<bool> = leader.group.members().iter().map(|member| member.voter).collect();
    assert_eq!(voters, [true, true, true, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_is_replaced_and_catches_up_when_it_is_back() {
    let mut cluster = Cluster::start(3, 0).await;
    let mut sum = 0;
    for round in 1..=3 {
        let dead = cluster.leader().await.id;
        cluster.leader().await.group.propose(add(&[round])).await.unwrap();
        cluster.kill(dead).await;
        let leader = cluster.leader().await;
        leader.group.propose(add(&[100])).await.unwrap();
        sum += round + 100;
        cluster.all_have(sum).await;
        cluster.restart(dead).await;
        cluster.all_have(sum).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_majority_answers_nothing_and_its_tail_goes() {
    let cluster = Cluster::start(3, 0).await;
    let old = cluster.leader().await;
    old.group.propose(add(&[1])).await.unwrap();
    cluster.mesh.isolate(old.id);
    let lost = tokio::time::timeout(Duration::from_millis(300), old.group.propose(add(&[1000]))).await;
    assert!(lost.is_err(), "{lost:?}");
    let new = cluster.leader_but(Some(old.id)).await;
    new.group.propose(add(&[2])).await.unwrap();
    // It finds out by itself, and then nobody has to wait for an answer that cannot come.
    not_leading(old).await;
    let refused = old.group.propose(add(&[1000])).await.unwrap_err();
    assert!(matches!(refused, ProposeError::NotLeader { leader: None }), "{refused}");
    cluster.mesh.heal();
    cluster.all_have(3).await;
    assert!(!old.adder.leads());
}

async fn not_leading(node: &Node) {
    let stopped = async {
        while node.adder.leads() || node.group.status().leading {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, stopped)
        .await
        .expect("it knows that it does not lead");
}

/// Nobody else can be elected meanwhile, so it goes on in the same term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_alone_for_a_while_goes_on() {
    let cluster = Cluster::start(3, 0).await;
    let leader = cluster.leader().await;
    leader.group.propose(add(&[1])).await.unwrap();
    for id in 1..=3 {
        cluster.mesh.isolate(NodeId(id));
    }
    let waiting = async { leader.group.propose(add(&[10])).await };
    let healing = async {
        not_leading(leader).await;
        cluster.mesh.heal();
    };
    let (outcome, ()) = tokio::join!(waiting, healing);
    cluster.leader().await.group.propose(add(&[100])).await.unwrap();
    // It may have been replaced after all, and then what it had alone is gone.
    let sum = if outcome.is_ok() { 111 } else { 101 };
    cluster.all_have(sum).await;
}

/// Two of three nodes are needed; a learner that has everything does not make up for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_counts_for_nothing() {
    let mut cluster = Cluster::start(3, 2).await;
    cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    cluster.all_have(1).await;
    let leader = cluster.leader().await.id;
    for id in (1..=3).map(NodeId).filter(|id| *id != leader) {
        cluster.kill(id).await;
    }
    let alone = &cluster.node(leader.0).group;
    let open = tokio::time::timeout(Duration::from_secs(2), alone.propose(add(&[1000]))).await;
    assert!(open.is_err() || open.is_ok_and(|outcome| outcome.is_err()));
    assert!(cluster.nodes.iter().all(|node| *node.adder.sum.lock() == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_over_and_members_come_and_go() {
    let cluster = Cluster::start(3, 1).await;
    cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    cluster.leader().await.group.hand_over(NodeId(2)).await;
    let second = cluster.leader_but(Some(NodeId(1))).await;
    assert_eq!(second.id, NodeId(2));
    second.group.promote(NodeId(4)).await.unwrap();
    second.group.promote(NodeId(4)).await.unwrap();
    second.group.add_learner(&peer(NodeId(4))).await.unwrap();
    second.group.remove(NodeId(3)).await.unwrap();
    second.group.remove(NodeId(3)).await.unwrap();
    let members: Vec<(u64, bool)> = second
        .group
        .members()
        .iter()
        .map(|member| (member.peer.node.0, member.voter))
        .collect();
    assert_eq!(members, [(1, true), (2, true), (4, true)]);
    let moved = Peer {
        node: NodeId(4),
        address: "elsewhere".to_owned(),
    };
    second.group.add_learner(&moved).await.unwrap();
    assert_eq!(second.group.members()[2].peer, moved);
    assert!(second.group.members()[2].voter, "a new address does not cost the vote");
    second.group.propose(add(&[1])).await.unwrap();
}

/// Checkpoints after every few entries, and next to nothing is kept beyond them.
pub(crate) fn forgetful(config: &mut GroupConfig) {
    config.checkpoint_interval_bytes = 2 << 10;
    config.kept_entries_bytes = 256;
}

pub(crate) async fn write_until_purged(leader: &Node, after: u64) -> u64 {
    let mut sum = 0;
    let write = async {
        while leader
            .group
            .log()
            .raft_state()
            .purged
            .is_none_or(|purged| purged.index.0 <= after)
        {
            leader.group.propose(add(&[1; 10])).await.unwrap();
            sum += 10;
        }
    };
    tokio::time::timeout(DEADLINE, write)
        .await
        .expect("entries are given up");
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_was_away_for_too_long_gets_a_snapshot_and_keeps_it() {
    let mut cluster = Cluster::start_with(3, 0, forgetful).await;
    let mut sum = 0;
    let away = (2..=3)
        .map(NodeId)
        .find(|id| !cluster.node(id.0).adder.leads())
        .unwrap();
    for _ in 0..3 {
        cluster.kill(away).await;
        let leader = cluster.leader().await;
        let last = leader.group.status().last.unwrap().0;
        sum += write_until_purged(leader, last).await;
        cluster.restart(away).await;
        cluster.all_have(sum).await;
        // What it got stands in its log: it is there after a restart, and entries follow it.
        cluster.kill(away).await;
        cluster.restart(away).await;
        cluster.leader().await.group.propose(add(&[1])).await.unwrap();
        sum += 1;
        cluster.all_have(sum).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_gets_a_snapshot_while_the_leader_goes_on() {
    let mut cluster = Cluster::start_with(1, 0, forgetful).await;
    let mut sum = write_until_purged(cluster.node(1), 10).await;
    for id in 2..=3 {
        let node = open(&cluster.mesh, cluster.dir.path(), NodeId(id), forgetful).await;
        cluster.nodes.push(node);
        let leader = &cluster.node(1).group;
        leader.add_learner(&peer(NodeId(id))).await.unwrap();
        for _ in 0..100 {
            leader.propose(add(&[1])).await.unwrap();
        }
        sum += 100;
        cluster.all_have(sum).await;
        cluster.node(1).group.promote(NodeId(id)).await.unwrap();
    }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// As after a power loss where syncs are not waited for. It is the follower that loses, and the others that have it all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_comes_back_with_less_than_it_confirmed_gets_it_again() {
    let mut cluster = Cluster::start(3, 0).await;
    cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    cluster.all_have(1).await;
    let follower = (2..=3)
        .map(NodeId)
        .find(|id| !cluster.node(id.0).adder.leads())
        .unwrap();
    let (dir, old) = (
        cluster.dir.path().join(follower.to_string()),
        cluster.dir.path().join("old"),
    );
    cluster.kill(follower).await;
    copy_dir(&dir, &old);
    cluster.restart(follower).await;
    for _ in 0..20 {
        cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    }
    cluster.all_have(21).await;
    let (leader, term) = (cluster.leader().await.id, cluster.leader().await.group.status().term);
    cluster.kill(follower).await;
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(&old, &dir).unwrap();
    cluster.restart(follower).await;
    cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    cluster.all_have(22).await;
    assert_eq!(
        (cluster.leader().await.id, cluster.leader().await.group.status().term),
        (leader, term)
    );
}

fn impatient(config: &mut GroupConfig) {
    config.stall_max = Duration::from_millis(500);
}

/// Proposes so many numbers at a time to a leader whose device hangs. Heartbeats go on, so nobody would notice.
async fn a_leader_whose_device_hangs_is_replaced(proposals: &[usize]) {
    let cluster = Cluster::start_with(3, 0, impatient).await;
    let old = cluster.leader().await;
    old.group.propose(add(&[1])).await.unwrap();
    let hanging = old.files.hang();
    let waiting = proposals.iter().map(|count| old.group.propose(add(&vec![1; *count])));
    let waiting = futures_util::future::join_all(waiting);
    let others = async {
        let new = cluster.leader_but(Some(old.id)).await;
        new.group.propose(add(&[1000])).await.unwrap();
        not_leading(old).await;
        drop(hanging);
    };
    let ((), outcomes) = tokio::join!(others, waiting);
    cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    let sum = *cluster.leader().await.adder.sum.lock();
    cluster.all_have(sum).await;
    // What the others had already is there even if nobody was told.
    let told: usize = outcomes.iter().flatten().map(Vec::len).sum();
    let all: usize = proposals.iter().sum();
    let unanswered = usize::try_from(sum).unwrap() - 1002;
    assert!((told..=all).contains(&unanswered), "{sum}, {told} of {all} were told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_waits_for_a_sync_is_replaced() {
    a_leader_whose_device_hangs_is_replaced(&[1]).await;
}

/// openraft itself waits then: it appends to a file that is not there yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_that_waits_for_the_next_file_is_replaced() {
    a_leader_whose_device_hangs_is_replaced(&[60_000; 8]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_members_that_its_leader_did_not_finish_is_finished_by_the_next_one() {
    let mut cluster = Cluster::start(2, 1).await;
    let last = |cluster: &Cluster| cluster.node(1).group.status().last.map_or(0, |last| last.0);
    let before = last(&cluster);
    cluster.mesh.isolate(NodeId(1));
    let group = cluster.node(1).group.clone();
    let promoting = tokio::spawn(async move { group.promote(NodeId(3)).await });
    let reach = async |cluster: &Cluster, index: u64| {
        let reached = async {
            while last(cluster) < index {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, reached).await.expect("an entry more");
    };
    // Old and new voters; the entry with the new ones alone is missing.
    reach(&cluster, before + 1).await;
    cluster.kill(NodeId(1)).await;
    assert!(promoting.await.unwrap().is_err());
    cluster.mesh.heal();
    cluster.restart(NodeId(1)).await;
    // One that opens its term, and the one that was missing.
    reach(&cluster, before + 3).await;
    cluster.leader().await.group.propose(add(&[1])).await.unwrap();
    cluster.kill(NodeId(2)).await;
    let written = async {
        // Two of three are there.
        while cluster.leader().await.group.propose(add(&[1])).await.is_err() {}
    };
    tokio::time::timeout(DEADLINE, written)
        .await
        .expect("a majority is there");
}
