//! The plane as its callers see it, and how commands get to whoever leads their group.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::GroupId;
use boltq_log::{Log, Space};
use boltq_raft::{Admitted, Group, Proposal, ProposeError};
use boltq_stream::{Outcome, group_of};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::StreamError;
use crate::group::StreamGroup;
use crate::settings::Settings;
use crate::wire;

/// For a leader to be found, and for a node to make sure that it is current.
const LEADER_MAX: Duration = Duration::from_secs(5);
/// Between two attempts to find it.
const PAUSE: Duration = Duration::from_millis(50);
/// Left in the prepared files of the log when what makes room is refused too, in bytes.
const RESERVE_BYTES: usize = 64 * 1024;

/// How a call to another node ended.
#[derive(Debug)]
pub enum Passed {
    /// What the leader answered: see [`Streams::serve`].
    Answered(Bytes),
    /// Nobody was asked, for this reason: the call was certainly not carried out.
    Nobody(String),
    /// It was sent, and no answer came.
    Lost(String),
}

/// The way to the nodes that lead the groups.
pub trait Route: Send + Sync + 'static {
    /// Has the node that leads a group carry out a call within a time, by its [`Streams::serve`].
    fn pass_on(&self, group: GroupId, call: Bytes, within: Duration) -> BoxFuture<'_, Passed>;
}

/// A group on this node.
#[derive(Clone)]
pub struct Slot {
    /// Takes part in it.
    pub group: Group<StreamGroup>,
    /// Its state.
    pub plane: Arc<StreamGroup>,
}

/// The messaging plane of a node; clones are cheap and share it.
#[derive(Clone)]
pub struct Streams {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) slots: Vec<Slot>,
    pub(crate) settings: Settings,
    log: Log,
    /// None: this node leads whatever is led.
    route: Option<Arc<dyn Route>>,
    /// Unix nanoseconds.
    pub(crate) clock: fn() -> u64,
    pub(crate) stop: CancellationToken,
}

/// Commands that have room on their way.
pub(crate) struct Ready {
    slot: Slot,
    kind: Kind,
    way: Way,
}

enum Way {
    /// This node leads.
    Here(Admitted),
    /// As another node takes them.
    Passed(Bytes),
}

/// What commands are for, when the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They store something.
    Storing,
    /// They make room, or take next to none.
    Keeping,
}

impl Streams {
    /// Over open groups of a log, in the order of their numbers. `clock` says Unix nanoseconds. When `stop` is cancelled, nobody
    /// waits for records any more.
    #[must_use]
    pub fn new(
        slots: Vec<Slot>,
        log: Log,
        settings: Settings,
        route: Option<Arc<dyn Route>>,
        clock: fn() -> u64,
        stop: CancellationToken,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                slots,
                settings,
                log,
                route,
                clock,
                stop,
            }),
        }
    }

    /// Number of groups.
    pub(crate) fn groups(&self) -> u32 {
        u32::try_from(self.inner.slots.len()).unwrap_or(u32::MAX)
    }

    /// The group that a partition belongs to.
    pub(crate) fn slot(&self, topic: &str, partition: u32) -> &Slot {
        self.numbered(group_of(topic, partition, self.groups()))
    }

    /// The group that says what a topic is.
    pub(crate) fn home(&self, topic: &str) -> &Slot {
        self.slot(topic, 0)
    }

    /// There is always one: a plane has at least one group, and numbers come from [`group_of`].
    pub(crate) fn numbered(&self, number: u32) -> &Slot {
        &self.inner.slots[number as usize]
    }

    /// Returns when the node begins to stop.
    pub async fn stopping(&self) {
        self.inner.stop.cancelled().await;
    }

    /// Returns when this node leads all groups: of a node that is alone, so that requests do not fail until then.
    pub async fn led(&self) {
        for slot in &self.inner.slots {
            slot.plane.led().await;
        }
    }

    /// Has commands carried out by whoever leads the group. Their outcomes come in their order.
    pub(crate) async fn propose(
        &self,
        slot: &Slot,
        proposal: Proposal,
        kind: Kind,
    ) -> Result<Vec<Outcome>, StreamError> {
        let ready = self.ready(slot, proposal, kind).await?;
        self.send(ready).await
    }

    /// The first half of [`Streams::propose`]: waits until there is room for it. What is sent in the order in which it became ready
    /// is carried out in that order, as long as the same node leads.
    pub(crate) async fn ready(&self, slot: &Slot, proposal: Proposal, kind: Kind) -> Result<Ready, StreamError> {
        let way = if slot.plane.is_leading() || self.inner.route.is_none() {
            Way::Here(self.admit(slot, proposal, kind).await?)
        } else {
            Way::Passed(wire::encode_call(slot.group.id(), kind, &proposal.into_bytes()))
        };
        Ok(Ready {
            slot: slot.clone(),
            kind,
            way,
        })
    }

    /// The second half of [`Streams::propose`].
    pub(crate) async fn send(&self, ready: Ready) -> Result<Vec<Outcome>, StreamError> {
        match ready.way {
            Way::Here(admitted) => self.propose_here(&ready.slot, admitted, ready.kind).await,
            Way::Passed(call) => self.pass_on(&ready.slot, call).await,
        }
    }

    /// Looks for the leader for a while. A call that it got is waited for, however long that has taken: it may be carried out.
    async fn pass_on(&self, slot: &Slot, call: Bytes) -> Result<Vec<Outcome>, StreamError> {
        let deadline = Instant::now() + LEADER_MAX;
        loop {
            let why = match self.call_leader(slot, call.clone()).await {
                Passed::Answered(answer) => match wire::decode_answer(&answer) {
                    Ok(Ok(outcomes)) => return Ok(outcomes),
                    Ok(Err(wire::Failure::NotLeader)) => "leadership changes".to_owned(),
                    Ok(Err(failure)) => return Err(failure.into()),
                    Err(error) => {
                        tracing::error!(group = %slot.group.id(), %error, "the answer of the leader cannot be read; has it another version?");
                        return Err(StreamError::Unconfirmed);
                    }
                },
                Passed::Nobody(why) => why,
                Passed::Lost(why) => {
                    tracing::debug!(group = %slot.group.id(), why, "the answer to a call that was passed on is lost");
                    return Err(StreamError::Unconfirmed);
                }
            };
            if Instant::now() >= deadline {
                return Err(no_leader(slot, &why));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn call_leader(&self, slot: &Slot, call: Bytes) -> Passed {
        // This one may lead by now.
        match self.inner.route.as_ref().filter(|_| !slot.plane.is_leading()) {
            Some(route) => {
                let within = self.inner.settings.confirm_max.unwrap_or(LEADER_MAX);
                route.pass_on(slot.group.id(), call, within).await
            }
            None => Passed::Answered(self.serve(&call).await),
        }
    }

    /// A call that another node passed on to this one: the answer for it.
    pub async fn serve(&self, call: &[u8]) -> Bytes {
        wire::encode_answer(&self.carry_out(call).await)
    }

    async fn carry_out(&self, call: &[u8]) -> Result<Vec<Outcome>, wire::Failure> {
        let call = wire::decode_call(call)?;
        let mut slots = self.inner.slots.iter();
        let slot = slots.find(|slot| slot.group.id() == call.group);
        let slot = slot.ok_or(wire::Failure::NotLeader)?;
        if !slot.plane.is_leading() {
            return Err(wire::Failure::NotLeader);
        }
        let proposal = Proposal::from_bytes(call.commands, boltq_stream::command::check)?;
        let admitted = self.admit(slot, proposal, call.kind).await?;
        Ok(self.propose_here(slot, admitted, call.kind).await?)
    }

    async fn admit(&self, slot: &Slot, proposal: Proposal, kind: Kind) -> Result<Admitted, StreamError> {
        if self.inner.log.space() == Space::Full {
            self.check_room(slot, proposal.len(), kind)?;
        }
        if kind == Kind::Storing {
            let enough = slot.group.enough_answer();
            enough.map_err(|error| StreamError::NotEnoughReplicas(error.to_string()))?;
        }
        let admitted = slot.group.admit(proposal).await;
        admitted.map_err(|error| refused(slot, &error))
    }

    async fn propose_here(&self, slot: &Slot, admitted: Admitted, kind: Kind) -> Result<Vec<Outcome>, StreamError> {
        let proposed = async {
            let placed = slot.group.propose_placed(admitted).await;
            let (outcomes, entry) = placed.map_err(|error| refused(slot, &error))?;
            if kind == Kind::Storing {
                slot.group.in_sync(entry).await.map_err(|_| StreamError::NotInSync)?;
            }
            Ok(outcomes)
        };
        match self.inner.settings.confirm_max {
            None => proposed.await,
            Some(within) => tokio::select! {
                biased;
                outcome = tokio::time::timeout(within, proposed) => outcome.unwrap_or(Err(StreamError::Unconfirmed)),
                () = slot.group.cut_off() => Err(StreamError::Unconfirmed),
            },
        }
    }

    /// While the disk is full, what is left of the prepared files is for what makes room. The log must never have to refuse an
    /// entry that was proposed.
    fn check_room(&self, slot: &Slot, bytes: usize, kind: Kind) -> Result<(), StreamError> {
        let wanted = slot.group.unsettled_bytes() + 2 * bytes + RESERVE_BYTES;
        if kind == Kind::Storing || self.inner.log.left_bytes() < wanted as u64 {
            return Err(StreamError::StorageFull);
        }
        Ok(())
    }

    /// Makes sure that this node has applied everything in a group that was confirmed before.
    pub(crate) async fn catch_up(&self, slot: &Slot) -> Result<(), StreamError> {
        let caught_up = slot.group.catch_up(LEADER_MAX).await;
        caught_up.map_err(|error| StreamError::NotCurrent { why: error.to_string() })
    }
}

fn refused(slot: &Slot, error: &ProposeError) -> StreamError {
    match error {
        ProposeError::NotLeader { .. } => no_leader(slot, "this node does not lead it"),
        ProposeError::TooLarge { .. } => StreamError::InvalidArgument(error.to_string()),
        ProposeError::Stopped => StreamError::Stopped,
    }
}

pub(crate) fn no_leader(slot: &Slot, why: &str) -> StreamError {
    StreamError::NoLeader {
        group: slot.group.id().to_string(),
        why: why.to_string(),
    }
}
