//! How openraft is to see our types.

use std::any::Any;
use std::fmt;

use bytes::Bytes;
use openraft::impls::BasicNode;
use openraft::impls::leader_id_adv::LeaderId;
use openraft::{EntryPayload, OptionalSend, RaftTypeConfig};

use crate::early::Logged;

/// One configuration for the groups of every plane, so that they can share connections between nodes. What a plane
/// answers is erased in between: [`Outcomes`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeConfig;

/// Written out, as the macro of openraft does not take a responder with a parameter.
impl RaftTypeConfig for TypeConfig {
    type D = EntryData;
    type R = Outcomes;
    type NodeId = u64;
    type Node = BasicNode;
    type Term = u64;
    type LeaderId = LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = EntryPayload<EntryData, u64, BasicNode>;
    type Entry = openraft::impls::Entry<LeaderId<u64, u64>, Self::Payload>;
    type AsyncRuntime = crate::runtime::Runtime;
    type Responder<T>
        = Reply<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type RaftEntry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, openraft::impls::BasicNode>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type WriteResult = openraft::raft::ClientWriteResult<TypeConfig>;

/// The packed commands of an entry, and who on this node waits for it to be in the log.
#[derive(Clone)]
pub(crate) struct EntryData {
    pub(crate) data: Bytes,
    pub(crate) logged: Logged,
}

impl EntryData {
    /// Of an entry that nobody here waits for.
    pub(crate) fn new(data: Bytes) -> Self {
        Self {
            data,
            logged: Logged::default(),
        }
    }
}

/// Who waits is no part of the entry.
impl PartialEq for EntryData {
    fn eq(&self, other: &Self) -> bool {
        self.data == other.data
    }
}

impl fmt::Display for EntryData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.data.len())
    }
}

impl fmt::Debug for EntryData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The outcomes of an entry: a `Vec` of the outcome type of the group, or nothing for an entry without commands.
pub(crate) struct Outcomes(pub(crate) Option<Box<dyn Any + Send + Sync>>);

impl fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outcomes").field(&self.0.is_some()).finish()
    }
}

/// Where openraft leaves a result. Dropped without one, the closure is dropped, and with it whoever waits in it.
pub(crate) struct Reply<T>(Box<dyn FnOnce(T) + Send>);

impl<T> Reply<T> {
    pub(crate) fn new(answer: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(answer))
    }
}

impl<T: Send + 'static> openraft::raft::responder::Responder<TypeConfig, T> for Reply<T> {
    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}
