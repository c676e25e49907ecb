//! The cluster that this node belongs to.
//!
//! What is wanted stands in the registry, the replicated state of the group `meta`; a node that joins or leaves is one
//! command there. From the registry the leader of each group brings its members into line ([`members`]), leadership is
//! spread over the voters ([`balance`]), and everybody knows where everybody is.

mod addresses;
mod admission;
mod advice;
mod balance;
mod calls;
mod departure;
mod error;
mod groups;
mod join;
mod members;
mod registry;
mod status;
mod stream;
mod streams;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use boltq_core::{GroupId, NodeId};
use boltq_messaging::Streams;
use boltq_meta::{NodeInfo, Outcome, command};
use boltq_raft::{Group, Peer, Proposal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use addresses::{Addresses, Redirected};
pub use departure::Departure;
pub use error::ClusterError;
pub use groups::{AnyGroup, FIRST_STREAM_GROUP, META_GROUP, META_NAME, QUEUE_GROUP, group_name};
pub use join::{SeedPlan, somebody_has_a_cluster};
pub use registry::MetaPlane;
pub use stream::StreamPlane;
pub use streams::LeaderRoute;

use crate::peer::Peers;
use crate::service::random;

/// Leadership that is not handed over in this time when the node stops is left to an election.
const HAND_OVER_MAX: Duration = Duration::from_secs(3);

/// See the module.
pub struct Cluster {
    /// This node as it is to stand in the registry.
    me: NodeInfo,
    meta: Group<MetaPlane>,
    plane: Arc<MetaPlane>,
    /// All groups of this node, that of the registry first.
    groups: Vec<Arc<dyn AnyGroup>>,
    peers: Peers,
    addresses: Arc<Addresses>,
    departure: Departure,
    /// Whom nodes ask that do not lead a group of the messaging plane.
    streams: OnceLock<Streams>,
}

impl Cluster {
    /// The cluster of a node whose groups are open. `groups` are those beside that of the registry.
    #[must_use]
    pub fn new(
        me: NodeInfo,
        meta: Group<MetaPlane>,
        plane: Arc<MetaPlane>,
        groups: Vec<Arc<dyn AnyGroup>>,
        (peers, addresses): (Peers, Arc<Addresses>),
        departure: Departure,
    ) -> Self {
        let first: Arc<dyn AnyGroup> = Arc::new(meta.clone());
        Self {
            me,
            meta,
            plane,
            groups: [vec![first], groups].concat(),
            peers,
            addresses,
            departure,
            streams: OnceLock::new(),
        }
    }

    /// Starts what goes on in the background until `stop`.
    pub fn start(self: &Arc<Self>, seeds: Option<SeedPlan>, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
        for group in &self.groups {
            let (group, plane) = (group.clone(), self.plane.clone());
            tasks.spawn(members::keep(group, plane, self.me.node, stop.clone()));
        }
        tasks.spawn(advice::keep(self.plane.clone(), stop.clone()));
        tasks.spawn(balance::keep(self.groups.clone(), self.me.node, stop.clone()));
        tasks.spawn(self.clone().keep_registered(stop.clone()));
        tasks.spawn(self.clone().watch_departure(stop.clone()));
        if let Some(seeds) = seeds {
            tasks.spawn(self.clone().find_others(seeds.clone(), stop.clone()));
            tasks.spawn(join::join(self.clone(), seeds, stop.clone()));
        }
    }

    /// Hands over all that this node leads.
    pub async fn hand_over_all(&self) {
        balance::hand_over_all(&self.groups, HAND_OVER_MAX).await;
    }

    /// Takes this node out of the cluster.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn leave_self(&self) -> Result<(), ClusterError> {
        self.departure.leave().await;
        self.leave(&self.me.name).await
    }

    /// Whether this node was removed, or left.
    #[must_use]
    pub fn departure(&self) -> &Departure {
        &self.departure
    }

    /// Where operators reach this node.
    #[must_use]
    pub fn admin_address(&self) -> &str {
        &self.me.admin
    }

    /// The groups, that of the registry first.
    #[must_use]
    pub fn group_ids(&self) -> Vec<GroupId> {
        self.groups.iter().map(|group| group.id()).collect()
    }

    /// What this node calls `cluster.stream_groups`.
    fn stream_groups(&self) -> u32 {
        let streams = self.groups.iter().filter(|group| group.id() >= FIRST_STREAM_GROUP);
        u32::try_from(streams.count()).unwrap_or(u32::MAX)
    }

    fn group(&self, id: GroupId) -> Option<&Arc<dyn AnyGroup>> {
        self.groups.iter().find(|group| group.id() == id)
    }

    /// The node that leads the queue plane, if it is known and another one: this node knows itself whether it leads yet. A
    /// node that was removed sends nobody there.
    #[must_use]
    pub fn queue_leader(&self) -> Option<NodeInfo> {
        if self.departure.is_removed() {
            return None;
        }
        let leader = self.group(QUEUE_GROUP)?.status().leader;
        let leader = leader.filter(|leader| *leader != self.me.node)?;
        self.plane.node(leader)
    }

    /// The node that leads a group, as a peer.
    fn leader_of(&self, group: GroupId) -> Option<Peer> {
        let group = self.group(group)?;
        let leader = group.status().leader?;
        let members = group.members();
        members
            .into_iter()
            .map(|member| member.peer)
            .find(|peer| peer.node == leader)
            .map(|peer| self.addresses.now(&peer))
    }

    /// As the leader of the registry, gives the cluster its id, and this node its place.
    async fn keep_registered(self: Arc<Self>, stop: CancellationToken) {
        let mut leadership = self.plane.leadership();
        loop {
            if leadership.borrow_and_update().is_some()
                && let Err(error) = self.register_me().await
            {
                tracing::debug!(%error, "this node could not register itself; trying again");
                leadership.mark_changed();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                // The sender lives as long as the plane.
                _ = leadership.changed() => {}
            }
        }
    }

    async fn register_me(&self) -> Result<(), ClusterError> {
        let registry = self.plane.registry();
        if registry.cluster().is_none() {
            let mut proposal = Proposal::new();
            command::found(proposal.begin(), random());
            self.meta.propose(proposal).await?;
        }
        if registry.node(self.me.node) != Some(&self.me) {
            self.register(&self.me).await?;
        }
        Ok(())
    }

    async fn register(&self, node: &NodeInfo) -> Result<(), ClusterError> {
        let mut proposal = Proposal::new();
        command::register(proposal.begin(), node);
        match self.meta.propose(proposal).await?.first() {
            Some(Outcome::Registered { replaced }) => {
                tracing::info!(
                    node = node.name,
                    voter = node.voter,
                    raft = node.raft,
                    ?replaced,
                    "registered"
                );
                Ok(())
            }
            Some(Outcome::Full) => Err(ClusterError::Refused(format!(
                "the cluster has {} nodes already, which is the most",
                boltq_meta::NODES_MAX
            ))),
            _ => Err(ClusterError::Stopped),
        }
    }

    async fn unregister(&self, node: NodeId) -> Result<(), ClusterError> {
        let mut proposal = Proposal::new();
        command::unregister(proposal.begin(), node);
        self.meta.propose(proposal).await?;
        Ok(())
    }
}
