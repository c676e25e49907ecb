//! A node that does not belong to the cluster any more notices it.
//!
//! A node that was removed gets no entry any more, so what it has applied cannot tell: mostly not even that it was removed.
//! And a node that lags, or was away while it left and came again, would take an old entry for the last word. So the node
//! asks. Who is asked catches up with all that is committed first ([`boltq_raft::Group::catch_up`]), so that an answer is as
//! good as one of the leader: nobody who was cut off, or replaced, can say that a member is none.
//!
//! A removed node stays and serves nothing, so that an operator sees why and can take it in again (`boltq cluster join`). It
//! does not ask its seeds: the next restart would undo what the operator did. For that it keeps a file in its data
//! directory. A node that leaves by itself when it is stopped, on the other hand, is to come again when it is started.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use boltq_core::NodeId;
use boltq_raft::Peer;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::calls::{Answer, CLUSTER_CALLS, Call, Failure};
use super::{AnyGroup, Cluster, ClusterError};

/// How often it is looked whether there is something to ask.
const LOOK: Duration = Duration::from_secs(1);
/// A member hears from a leader more often, unless there is none.
const SILENCE: Duration = Duration::from_secs(5);
/// For one node to answer: it has to find its leader, which may take an election.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// For who is asked to catch up.
const CATCH_UP_MAX: Duration = Duration::from_secs(3);

const FILE: &str = "departed";
const REMOVED: &str = "removed\n";
const LEFT: &str = "left\n";

/// How a node parted from its cluster, as far as it knows.
#[derive(Debug)]
pub struct Departure {
    /// Where it is kept across restarts; nowhere without a disk, as such a node comes as a new one.
    dir: Option<PathBuf>,
    removed: AtomicBool,
    /// It leaves by itself: being removed is what it wants.
    leaving: AtomicBool,
    /// It left by itself, and has not come again yet.
    left: AtomicBool,
}

impl Departure {
    /// What is kept in the data directory. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub fn load(dir: Option<PathBuf>) -> io::Result<Self> {
        let kept = match &dir {
            None => String::new(),
            Some(dir) => match fs::read_to_string(dir.join(FILE)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
                read => read?,
            },
        };
        if !["", REMOVED, LEFT].contains(&kept.as_str()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{FILE} holds neither \"removed\" nor \"left\"; remove it to start as a member"),
            ));
        }
        Ok(Self {
            dir,
            removed: AtomicBool::new(kept == REMOVED),
            leaving: AtomicBool::new(false),
            left: AtomicBool::new(kept == LEFT),
        })
    }

    /// Whether somebody removed this node.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Whether this node left by itself the last time that it was stopped.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// From now on, being removed is what this node wants.
    pub(super) async fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
        self.left.store(true, Ordering::Release);
        self.keep(LEFT).await;
    }

    /// It is a member, whatever it was before.
    pub(super) async fn belong(&self) {
        if self.removed.swap(false, Ordering::AcqRel) {
            tracing::info!("this node belongs to the cluster again");
        } else if !self.left.load(Ordering::Acquire) {
            return;
        }
        self.left.store(false, Ordering::Release);
        self.keep("").await;
    }

    pub(super) async fn be_removed(&self) {
        if !self.removed.swap(true, Ordering::AcqRel) {
            self.keep(REMOVED).await;
            tell();
        }
    }

    async fn keep(&self, text: &'static str) {
        let Some(dir) = self.dir.clone() else { return };
        let kept = tokio::task::spawn_blocking(move || write(&dir, text)).await;
        if let Ok(Err(error)) = kept {
            tracing::error!(%error, "cannot write {FILE} in the data directory");
        }
    }
}

/// One line, at once and after every start.
fn tell() {
    tracing::error!(
        "this node was removed from the cluster and serves nothing; stop it, or take it in again: \
         `boltq cluster join` with its Raft address, at a node of the cluster"
    );
}

/// Synced before it gets its name, so that no crash leaves half of it.
fn write(dir: &Path, text: &str) -> io::Result<()> {
    let path = dir.join(FILE);
    if text.is_empty() {
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    } else {
        let unfinished = dir.join(format!("{FILE}.tmp"));
        let mut file = fs::File::create(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
    }
    fs::File::open(dir)?.sync_all()
}

impl Cluster {
    /// Looks after it until `stop`.
    pub(super) async fn watch_departure(self: Arc<Self>, stop: CancellationToken) {
        if self.departure.is_removed() {
            tell();
        }
        let mut heard = tokio::time::Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let hears = self.meta.status().leader.is_some();
            if hears {
                heard = tokio::time::Instant::now();
            }
            let removed = self.departure.is_removed();
            let registered = self.plane.registry().node(self.me.node).is_some();
            let doubtful = if removed {
                hears
            } else {
                self.was_member() && (!registered || heard.elapsed() > SILENCE)
            };
            if self.departure.leaving.load(Ordering::Acquire) || !doubtful && !self.departure.has_left() {
                continue;
            }
            let asked = tokio::select! {
                () = stop.cancelled() => return,
                asked = self.ask_whether_member() => asked,
            };
            match asked {
                Some(true) => self.departure.belong().await,
                // What left by itself is about to come again.
                Some(false) if !self.departure.has_left() => self.departure.be_removed().await,
                Some(false) | None => {}
            }
        }
    }

    /// A node gets its first entry of the registry after it was registered, so who has one was a member.
    fn was_member(&self) -> bool {
        self.meta.status().last.is_some()
    }

    /// Whether this node belongs to the cluster now, if a member says so.
    async fn ask_whether_member(&self) -> Option<bool> {
        let call = Call::Member { node: self.me.node.0 };
        let request = Bytes::from(serde_json::to_vec(&call).ok()?);
        for peer in self.others() {
            let answer = self
                .peers
                .forward(&peer, CLUSTER_CALLS, request.clone(), ANSWER_MAX)
                .await;
            let answer = answer.ok().and_then(|answer| serde_json::from_slice(&answer).ok());
            match answer {
                Some(Answer::Ok(_)) => return Some(true),
                Some(Answer::Err(Failure::UnknownNode(_))) => return Some(false),
                Some(Answer::Err(_)) | None => {}
            }
        }
        None
    }

    /// All other nodes that this one knows, where they are or were.
    fn others(&self) -> Vec<Peer> {
        let registry = self.plane.registry();
        let registered = registry.nodes().map(|node| Peer {
            node: node.node,
            address: node.raft.clone(),
        });
        let members = AnyGroup::members(&self.meta).into_iter().map(|member| member.peer);
        let mut others: Vec<Peer> = registered.chain(members).collect();
        others.extend(others.clone().iter().map(|peer| self.addresses.now(peer)));
        others.retain(|peer| peer.node != self.me.node);
        others.sort();
        others.dedup();
        others
    }

    /// See [`Cluster::ask_whether_member`]; this is who is asked. The answer is current, or there is none.
    pub(super) async fn member_here(&self, node: NodeId) -> Result<String, ClusterError> {
        // Boxed, or the compiler gives up on the calls that lead here.
        let caught_up = Box::pin(self.meta.catch_up(CATCH_UP_MAX)).await;
        caught_up.map_err(|error| ClusterError::NoLeader {
            group: "meta".to_owned(),
            why: error.to_string(),
        })?;
        let registry = self.plane.registry();
        if registry.cluster().is_none() {
            return Err(ClusterError::Refused("this node belongs to no cluster".to_owned()));
        }
        match registry.node(node) {
            Some(known) => Ok(known.name.clone()),
            None => Err(ClusterError::UnknownNode(format!("{:016x}", node.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_became_of_the_membership_stands_in_the_data_directory() {
        let dir = tempfile::tempdir().unwrap();
        let load = || Departure::load(Some(dir.path().to_owned())).unwrap();
        let shown = |departure: &Departure| (departure.is_removed(), departure.has_left());
        assert_eq!(shown(&load()), (false, false));
        load().be_removed().await;
        assert_eq!(shown(&load()), (true, false));
        load().belong().await;
        assert_eq!(shown(&load()), (false, false));
        load().leave().await;
        assert_eq!(shown(&load()), (false, true));
        load().belong().await;
        assert_eq!(shown(&load()), (false, false));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_node_without_a_disk_keeps_nothing() {
        let departure = Departure::load(None).unwrap();
        departure.be_removed().await;
        assert!(departure.is_removed());
        departure.belong().await;
        assert!(!departure.is_removed());
    }

    #[test]
    fn a_file_of_somebody_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "remov").unwrap();
        assert!(Departure::load(Some(dir.path().to_owned())).is_err());
    }
}
