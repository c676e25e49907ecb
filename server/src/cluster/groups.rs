//! The groups of a node, whatever their state machine is.

use boltq_core::{GroupId, NodeId};
use boltq_raft::{Group, GroupFigures, GroupHandler, GroupStatus, Member, MembershipError, Peer};
use futures_util::future::BoxFuture;

/// The registry of the cluster.
pub const META_GROUP: GroupId = GroupId(2);
/// The queue plane. Numbers of groups are part of the format on disk.
pub const QUEUE_GROUP: GroupId = GroupId(1);
/// Those of the messaging plane follow each other from here on.
pub const FIRST_STREAM_GROUP: GroupId = GroupId(1_000);

/// What the admin port has always called the group of the registry; commands take both.
pub const META_NAME: &str = "metadata";

/// What people call a group.
#[must_use]
pub fn group_name(group: GroupId) -> String {
    match group {
        META_GROUP => "meta".to_owned(),
        QUEUE_GROUP => "queue".to_owned(),
        GroupId(id) if id >= FIRST_STREAM_GROUP.0 => format!("stream-{}", id - FIRST_STREAM_GROUP.0),
        GroupId(id) => format!("group-{id}"),
    }
}

/// A group as the cluster sees it.
pub trait AnyGroup: Send + Sync {
    /// Its number.
    fn id(&self) -> GroupId;
    /// What it is doing.
    fn status(&self) -> GroupStatus;
    /// See [`Group::figures`].
    fn figures(&self) -> GroupFigures;
    /// Who belongs to it.
    fn members(&self) -> Vec<Member>;
    /// See [`Group::is_changing`].
    fn is_changing(&self) -> bool;
    /// See [`Group::hand_over`].
    fn hand_over(&self, to: NodeId) -> BoxFuture<'_, ()>;
    /// See [`Group::heir`].
    fn heir(&self) -> BoxFuture<'_, Option<NodeId>>;
    /// See [`Group::has_room`].
    fn has_room(&self, node: NodeId) -> BoxFuture<'_, bool>;
    /// See [`Group::add_learner`].
    fn add_learner<'a>(&'a self, peer: &'a Peer) -> BoxFuture<'a, Result<(), MembershipError>>;
    /// See [`Group::promote`].
    fn promote(&self, node: NodeId) -> BoxFuture<'_, Result<(), MembershipError>>;
    /// See [`Group::demote`].
    fn demote(&self, node: NodeId) -> BoxFuture<'_, Result<(), MembershipError>>;
    /// See [`Group::remove`].
    fn remove(&self, node: NodeId) -> BoxFuture<'_, Result<(), MembershipError>>;
}

impl<H: GroupHandler> AnyGroup for Group<H> {
    fn id(&self) -> GroupId {
        Group::id(self)
    }

    fn status(&self) -> GroupStatus {
        Group::status(self)
    }

    fn figures(&self) -> GroupFigures {
        Group::figures(self)
    }

    fn members(&self) -> Vec<Member> {
        Group::members(self)
    }

    fn is_changing(&self) -> bool {
        Group::is_changing(self)
    }

    fn hand_over(&self, to: NodeId) -> BoxFuture<'_, ()> {
        Box::pin(Group::hand_over(self, to))
    }

    fn heir(&self) -> BoxFuture<'_, Option<NodeId>> {
        Box::pin(Group::heir(self))
    }

    fn has_room(&self, node: NodeId) -> BoxFuture<'_, bool> {
        Box::pin(Group::has_room(self, node))
    }

    fn add_learner<'a>(&'a self, peer: &'a Peer) -> BoxFuture<'a, Result<(), MembershipError>> {
        Box::pin(Group::add_learner(self, peer))
    }

    fn promote(&self, node: NodeId) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(Group::promote(self, node))
    }

    fn demote(&self, node: NodeId) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(Group::demote(self, node))
    }

    fn remove(&self, node: NodeId) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(Group::remove(self, node))
    }
}
