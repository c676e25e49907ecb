//! Operations that the leader of a group carries out, whoever is asked.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, NodeId, check_name};
use boltq_meta::NodeInfo;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{AnyGroup, Cluster, ClusterError, META_GROUP, META_NAME, group_name};
use crate::service::{JoinRequest, NodeStatus};

/// Number of the service between nodes that takes [`Call`]s. Nodes of other versions know it; numbers are not used again.
pub(super) const CLUSTER_CALLS: u32 = 0;
/// That of the messaging plane: [`boltq_messaging::Streams::serve`].
pub(super) const STREAM_CALLS: u32 = 1;
/// A leader that is not found in this time, or does not answer, is reported as none.
const LEADER_MAX: Duration = Duration::from_secs(10);
/// For one attempt to have the leader do it.
const ATTEMPT_MAX: Duration = Duration::from_secs(8);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// For a node to say who it is.
const IDENTIFY_MAX: Duration = Duration::from_secs(3);
/// For another node to take over leadership.
const TRANSFER_MAX: Duration = Duration::from_secs(5);

/// A request from a node that does not lead to the one that does.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    Join {
        name: String,
        address: String,
        voter: bool,
        refresh: bool,
    },
    Leave {
        name: String,
    },
    Transfer {
        group: u32,
        to: String,
    },
    /// Whether a node belongs to the cluster.
    Member {
        node: u64,
    },
}

/// The name of the node that it was about, or why nothing was done.
pub(super) type Answer = Result<String, Failure>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Failure {
    /// Ask whoever leads now.
    NotLeader,
    NotReached {
        address: String,
        why: String,
    },
    Invalid(String),
    Refused(String),
    UnknownNode(String),
    Removed(String),
    Stopped,
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::NoLeader { .. } => Self::NotLeader,
            ClusterError::NotReached { address, why } => Self::NotReached { address, why },
            ClusterError::Invalid(why) => Self::Invalid(why),
            ClusterError::UnknownNode(name) => Self::UnknownNode(name),
            ClusterError::Removed(name) => Self::Removed(name),
            ClusterError::Stopped => Self::Stopped,
            ClusterError::Refused(why) => Self::Refused(why),
            ClusterError::NotEnabled | ClusterError::UnknownGroup(_) => Self::Refused(error.to_string()),
        }
    }
}

impl Failure {
    /// Nothing if it is worth another attempt.
    fn into_error(self) -> Option<ClusterError> {
        Some(match self {
            Self::NotLeader => return None,
            Self::NotReached { address, why } => ClusterError::NotReached { address, why },
            Self::Invalid(why) => ClusterError::Invalid(why),
            Self::Refused(why) => ClusterError::Refused(why),
            Self::UnknownNode(name) => ClusterError::UnknownNode(name),
            Self::Removed(name) => ClusterError::Removed(name),
            Self::Stopped => ClusterError::Stopped,
        })
    }
}

impl Cluster {
    /// See [`crate::service::Clustering::join`].
    pub(crate) async fn join(&self, request: JoinRequest) -> Result<NodeStatus, ClusterError> {
        if request.address.is_empty() {
            return Err(ClusterError::Invalid(
                "addr is required: host and Raft port of the node".to_owned(),
            ));
        }
        check_optional_name(&request.name)?;
        let call = Call::Join {
            name: request.name,
            address: request.address.clone(),
            voter: request.voter,
            refresh: request.refresh,
        };
        let name = self.have_done(META_GROUP, &call).await?;
        // The leader has it; this node hears of it with the next entries.
        let as_wanted = |node: &NodeInfo| node.voter == request.voter && node.raft == request.address;
        self.seen(&name, as_wanted).await
    }

    /// See [`crate::service::Clustering::leave`].
    pub(crate) async fn leave(&self, name: &str) -> Result<(), ClusterError> {
        check_node_name(name)?;
        let name = name.to_owned();
        self.have_done(META_GROUP, &Call::Leave { name }).await.map(|_| ())
    }

    /// See [`crate::service::Clustering::transfer`].
    pub(crate) async fn transfer(&self, group: &str, to: &str) -> Result<NodeStatus, ClusterError> {
        check_optional_name(to)?;
        let group = if group == META_NAME {
            group_name(META_GROUP)
        } else {
            group.to_owned()
        };
        let id = self.group_ids().into_iter().find(|id| group_name(*id) == group);
        let id = id.ok_or(ClusterError::UnknownGroup(group))?;
        if self.group(id).is_some_and(|group| group.members().is_empty()) {
            return Err(ClusterError::Refused(format!(
                "the group {} has no members as far as this node knows; have all nodes the same cluster.stream_groups?",
                group_name(id)
            )));
        }
        let call = Call::Transfer {
            group: id.0,
            to: to.to_owned(),
        };
        let name = self.have_done(id, &call).await?;
        self.seen(&name, |_| true).await
    }

    async fn seen(&self, name: &str, is_it: impl Fn(&NodeInfo) -> bool) -> Result<NodeStatus, ClusterError> {
        let seen = async {
            loop {
                if let Some(node) = self.plane.registry().named(name).filter(|node| is_it(node)) {
                    return node.clone();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let seen = tokio::time::timeout(ATTEMPT_MAX, seen).await;
        seen.map_err(|_| ClusterError::UnknownNode(name.to_owned()))
    }

    /// Does it here, or has the leader of the group do it.
    async fn have_done(&self, group: GroupId, call: &Call) -> Result<String, ClusterError> {
        let mut why = "nobody is known to lead it".to_owned();
        let attempts = async {
            loop {
                match self.attempt(group, call).await {
                    Ok(Ok(name)) => return Ok(name),
                    Ok(Err(failure)) => {
                        if let Some(error) = failure.into_error() {
                            return Err(error);
                        }
                    }
                    Err(reason) => why = reason,
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        match tokio::time::timeout(LEADER_MAX, attempts).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ClusterError::NoLeader {
                group: group_name(group),
                why,
            }),
        }
    }

    /// Why it was not asked, if it was not.
    async fn attempt(&self, group: GroupId, call: &Call) -> Result<Answer, String> {
        let Some(leader) = self.leader_of(group) else {
            return Ok(Err(Failure::NotLeader));
        };
        if leader.node == self.me.node {
            return Ok(self.carry_out(call).await);
        }
        let request = serde_json::to_vec(call).map_err(|error| error.to_string())?;
        let asked = self
            .peers
            .forward(&leader, CLUSTER_CALLS, Bytes::from(request), ATTEMPT_MAX);
        let asked = asked.await;
        let answer = asked.map_err(|error| error.to_string())?;
        serde_json::from_slice(&answer).map_err(|error| error.to_string())
    }

    /// A call that another node sent here.
    ///
    /// # Errors
    /// It is for another service, or cannot be read.
    pub async fn serve(self: Arc<Self>, service: u32, request: Bytes) -> Result<Bytes, String> {
        if service == STREAM_CALLS {
            return self.serve_streams(request).await;
        }
        check_service(service)?;
        let call: Call = serde_json::from_slice(&request).map_err(|error| error.to_string())?;
        let answer = self.carry_out(&call).await;
        serde_json::to_vec(&answer)
            .map(Bytes::from)
            .map_err(|error| error.to_string())
    }

    async fn carry_out(&self, call: &Call) -> Answer {
        let done = match call {
            Call::Join {
                name,
                address,
                voter,
                refresh,
            } => self.join_here(name, address, *voter, *refresh).await,
            Call::Member { node } => self.member_here(NodeId(*node)).await,
            Call::Leave { name } => self.leave_here(name).await,
            Call::Transfer { group, to } => self.transfer_here(GroupId(*group), to).await,
        };
        done.map_err(Failure::from)
    }

    fn check_leading(&self) -> Result<(), ClusterError> {
        if self.plane.is_leading() {
            return Ok(());
        }
        Err(ClusterError::NoLeader {
            group: group_name(META_GROUP),
            why: "this node does not lead it".to_owned(),
        })
    }

    /// `refresh`: only a node that is there already, which tells where it is now.
    async fn join_here(&self, name: &str, address: &str, voter: bool, refresh: bool) -> Result<String, ClusterError> {
        self.check_leading()?;
        let info = self.identify(address).await?;
        let cluster = self.plane.registry().cluster();
        if info.cluster != 0 && Some(info.cluster) != cluster {
            return Err(ClusterError::Refused(format!(
                "the node at {address} belongs to another cluster ({:016x}); start it on an empty data directory",
                info.cluster
            )));
        }
        if !name.is_empty() && name != info.name {
            return Err(ClusterError::Refused(format!(
                "the node at {address} is called {:?}, not {name:?}",
                info.name
            )));
        }
        if refresh && matches!(self.member_here(info.node).await, Err(ClusterError::UnknownNode(_))) {
            return Err(ClusterError::Removed(info.name));
        }
        self.check_name_is_free(&info.name, info.node).await?;
        self.check_is_no_copy(&info, address).await?;
        self.check_groups(&info, address)?;
        if let Some(known) = self.plane.registry().node(info.node).filter(|_| !voter) {
            self.check_vote_may_go(known).await?;
        }
        let node = NodeInfo {
            node: info.node,
            name: info.name.clone(),
            raft: address.to_owned(),
            messaging: info.messaging_address,
            admin: info.admin_address,
            voter,
            version: info.version,
        };
        self.register(&node).await?;
        Ok(info.name)
    }

    pub(super) async fn identify(&self, address: &str) -> Result<crate::peer::PeerInfo, ClusterError> {
        let not_reached = |why: String| ClusterError::NotReached {
            address: address.to_owned(),
            why,
        };
        let asked = self.peers.identify(address, IDENTIFY_MAX).await;
        asked.map_err(|error| not_reached(error.why))
    }

    /// A node that comes under a name that another one has takes its place, unless that one is there.
    async fn check_name_is_free(&self, name: &str, node: NodeId) -> Result<(), ClusterError> {
        let registry = self.plane.registry();
        let Some(other) = registry.named(name).filter(|other| other.node != node) else {
            return Ok(());
        };
        let there = other.node == self.me.node
            || self
                .identify(&other.raft)
                .await
                .is_ok_and(|info| info.node == other.node);
        if there {
            return Err(ClusterError::Refused(format!(
                "another node is called {name:?} and is there, at {}; give this one another cluster.node_id",
                other.raft
            )));
        }
        Ok(())
    }

    async fn leave_here(&self, name: &str) -> Result<String, ClusterError> {
        self.check_leading()?;
        let registry = self.plane.registry();
        let node = registry
            .named(name)
            .ok_or_else(|| ClusterError::UnknownNode(name.to_owned()))?;
        self.check_vote_may_go(node).await?;
        self.unregister(node.node).await?;
        tracing::info!(node = name, "left the cluster");
        Ok(name.to_owned())
    }

    async fn transfer_here(&self, group: GroupId, to: &str) -> Result<String, ClusterError> {
        let group = self
            .group(group)
            .ok_or_else(|| ClusterError::UnknownGroup(group_name(group)))?;
        if !group.status().leading {
            return Err(ClusterError::NoLeader {
                group: group_name(group.id()),
                why: "this node does not lead it".to_owned(),
            });
        }
        let target = self.transfer_target(&**group, to).await?;
        if target == self.me.node {
            return Ok(self.me.name.clone());
        }
        group.hand_over(target).await;
        let taken = async {
            while group.status().leader != Some(target) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(TRANSFER_MAX, taken).await.is_err() {
            return Err(ClusterError::Refused(
                "the other node has not taken over in time; it may be down, or lack too much".to_owned(),
            ));
        }
        let registry = self.plane.registry();
        Ok(registry.node(target).map(|node| node.name.clone()).unwrap_or_default())
    }

    async fn transfer_target(&self, group: &dyn AnyGroup, to: &str) -> Result<NodeId, ClusterError> {
        if to.is_empty() {
            let none = || ClusterError::Refused("there is no other voter that answers".to_owned());
            return group.heir().await.ok_or_else(none);
        }
        let registry = self.plane.registry();
        let node = registry
            .named(to)
            .ok_or_else(|| ClusterError::UnknownNode(to.to_owned()))?
            .node;
        if group
            .members()
            .iter()
            .any(|member| member.voter && member.peer.node == node)
        {
            Ok(node)
        } else {
            Err(ClusterError::Refused(format!("{to:?} does not vote in this group")))
        }
    }
}

/// A node of a later version may have more services, and this one must not take their calls for its own.
fn check_service(service: u32) -> Result<(), String> {
    match service {
        CLUSTER_CALLS | STREAM_CALLS => Ok(()),
        other => Err(format!(
            "there is no service {other} on this node; it has version {}",
            env!("CARGO_PKG_VERSION")
        )),
    }
}

/// Names of nodes follow the rule of all names.
fn check_node_name(name: &str) -> Result<(), ClusterError> {
    check_name(name).map_err(|error| ClusterError::Invalid(format!("node_id: {error}")))
}

/// Where an empty name leaves the choice.
fn check_optional_name(name: &str) -> Result<(), ClusterError> {
    match name {
        "" => Ok(()),
        name => check_node_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_services_that_are_known_are_taken() {
        assert_eq!((CLUSTER_CALLS, STREAM_CALLS), (0, 1), "other nodes know them");
        assert_eq!(check_service(CLUSTER_CALLS).and(check_service(STREAM_CALLS)), Ok(()));
        for other in [2, u32::MAX] {
            let error = check_service(other).unwrap_err();
            assert!(error.contains(&format!("no service {other} ")), "{error}");
        }
    }

    #[test]
    fn names_of_nodes_follow_the_rule_of_all_names() {
        let invalid = |checked: Result<(), ClusterError>| matches!(checked, Err(ClusterError::Invalid(_)));
        assert!(invalid(check_node_name("")) && check_optional_name("").is_ok());
        for name in ["a\nb", &"x".repeat(201)] {
            assert!(
                invalid(check_node_name(name)) && invalid(check_optional_name(name)),
                "{name}"
            );
        }
        assert!(check_node_name("größe 1").is_ok());
    }
}
