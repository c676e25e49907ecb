//! A member without room for the entries of its leader.
//!
//! On a full device, entries that tell that records may go are as welcome as any, but they come after others, and there is no
//! room for those. So a member refuses entries that certainly do not fit, before openraft sees them: openraft would wait
//! for their append and do nothing else meanwhile, not even answer heartbeats, vote, or take a snapshot. And it asks the
//! leader for a snapshot in place of its log, again and again, ever less often. Once what it lacks room for has been
//! consumed elsewhere, the snapshot is small, and what it replaces makes room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as StdInstant};

use boltq_core::NodeId;
use boltq_log::Space;
use futures_util::{StreamExt, TryStreamExt};
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::group::{Group, GroupHandler, Inner};
use crate::network::SNAPSHOT_PROGRESS_MAX;
use crate::snapshot;
use crate::transport::Peer;
use crate::wire::{self, Request};

/// How often a member looks whether it starves.
const LOOK: Duration = Duration::from_millis(250);
/// What starves for less gets room by itself, from files that go.
const STARVED_MIN: Duration = Duration::from_secs(2);
/// Between two requests for a snapshot; it doubles …
const PAUSE: Duration = Duration::from_secs(5);
/// … up to this.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// For a snapshot to be here.
const SNAPSHOT_MAX: Duration = Duration::from_secs(600);
/// Left in the log for votes, and for what other groups write, when entries are refused.
const RESERVE_BYTES: u64 = 64 << 10;
/// What an entry takes in the log beyond its bytes in a request, at most.
const FRAME_BYTES: u64 = 64;
/// For the log to find out whether there is room for its next file.
const NEXT_FILE: Duration = Duration::from_millis(2);

/// What is known about entries that come.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// Bytes that were let in and are not appended yet.
    coming: AtomicU64,
    /// One after the other, so that those who wait do not wait for each other.
    turn: tokio::sync::Mutex<()>,
    /// Entries are refused since then.
    starving: Mutex<Option<Instant>>,
}

/// Entries on their way from a leader to the log.
pub(crate) struct Coming {
    intake: Arc<Intake>,
    bytes: u64,
}

impl Intake {
    fn let_in(self: &Arc<Self>, bytes: u64) -> Coming {
        self.coming.fetch_add(bytes, Ordering::AcqRel);
        let intake = self.clone();
        Coming { intake, bytes }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.intake.coming.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl<H: GroupHandler> Group<H> {
    /// Lets entries of a leader in, if the log certainly has room for them, or may still get it.
    ///
    /// # Errors
    /// It has none.
    pub(crate) async fn let_entries_in(&self, count: usize, request_bytes: usize) -> Result<Option<Coming>, String> {
        if count == 0 {
            return Ok(None);
        }
        let (log, intake) = (self.log(), &self.inner.progress.intake);
        let bytes = request_bytes as u64 + count as u64 * FRAME_BYTES;
        let _turn = intake.turn.lock().await;
        loop {
            let all = intake.coming.load(Ordering::Acquire) + bytes;
            match log.space() {
                Space::Full if all + RESERVE_BYTES > log.left_bytes() => {
                    self.starve();
                    return Err("the device of this member is full".to_owned());
                }
                // Alone, they wait in the log for its next file, as large as they need it.
                Space::Ample if all > log.left_bytes() && all > bytes => tokio::time::sleep(NEXT_FILE).await,
                Space::Full | Space::Ample => break,
            }
        }
        *intake.starving.lock() = None;
        Ok(Some(intake.let_in(bytes)))
    }

    fn starve(&self) {
        let mut starving = self.inner.progress.intake.starving.lock();
        if starving.is_none() {
            *starving = Some(Instant::now());
            tracing::debug!(group = %self.id(), "no room for entries of the leader");
        }
    }

    /// As the leader, sends a snapshot of what is applied now to a member that asks for it.
    ///
    /// # Errors
    /// In words, for that member.
    pub(crate) async fn feed(&self, to: NodeId) -> Result<(), String> {
        let inner = &self.inner;
        let _one_at_a_time = inner
            .progress
            .feeding
            .try_lock()
            .map_err(|_| "another member is sent one")?;
        let (vote, state) = {
            let metrics = inner.raft.metrics();
            let metrics = metrics.borrow_watched();
            (metrics.vote, metrics.state)
        };
        if state != ServerState::Leader {
            return Err("this node does not lead".to_owned());
        }
        let peer = self.peer(to).ok_or("it is no member")?;
        let transport = self.transport().ok_or("the group stops")?;
        if !inner.checkpoint().await {
            return Err("no checkpoint can be written".to_owned());
        }
        let (progress, begun) = (self.progress(), StdInstant::now());
        let counting = progress.clone();
        let chunks = snapshot::chunks(self.log(), vote);
        let chunks = chunks.inspect_ok(move |chunk| counting.metrics.sent.bytes(chunk.len()));
        let sent = transport.send(&peer, self.id(), chunks.boxed(), SNAPSHOT_PROGRESS_MAX);
        let sent = sent.await;
        progress.metrics.sent.ended(sent.is_ok(), begun.elapsed());
        sent.map(drop).map_err(|error| error.to_string())
    }

    /// A member, where it is.
    pub(crate) fn peer(&self, node: NodeId) -> Option<Peer> {
        let mut members = self.members().into_iter().map(|member| member.peer);
        members.find(|peer| peer.node == node)
    }

    /// Asks the leader for a snapshot, and waits until it is installed.
    async fn ask_for_snapshot(&self) -> Result<(), String> {
        let leader = self.status().leader.filter(|leader| *leader != self.node());
        let leader = leader.ok_or("nobody else leads")?;
        let peer = self.peer(leader).ok_or("the leader is no member")?;
        let transport = self.transport().ok_or("the group stops")?;
        let request = Request::Feed(self.node()).encode();
        let asked = transport.call(&peer, self.id(), request, SNAPSHOT_MAX).await;
        let answer = asked.map_err(|error| error.to_string())?;
        wire::decode_feed_answer(&answer).map_err(|error| error.to_string())
    }
}

impl<H: GroupHandler> Inner<H> {
    /// As long as the group is there, has it fed when it starves.
    pub(crate) async fn watch_starving(self: Arc<Self>) {
        let group = Group::from(self.clone());
        let (mut pause, mut due) = (PAUSE, Instant::now());
        let mut told = false;
        loop {
            crate::beat::sleep(LOOK).await;
            let since = *self.progress.intake.starving.lock();
            let Some(since) = since else {
                if std::mem::take(&mut told) {
                    tracing::info!(group = %self.config.group, "there is room for entries of the leader again");
                }
                (pause, due) = (PAUSE, Instant::now());
                continue;
            };
            if since.elapsed() < STARVED_MIN || due > Instant::now() {
                continue;
            }
            let fed = group.ask_for_snapshot().await;
            let why = fed.err().unwrap_or_default();
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(
                    group = %self.config.group, why,
                    "no room for what the leader sends: this node falls behind, and asks for a snapshot instead of its log until \
                     one fits"
                );
            }
            due = Instant::now() + pause;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
