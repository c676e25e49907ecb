//! Brings the members of a group into line with the registry.
//!
//! Whoever leads the group does it, one step at a time, and looks again after each: so it goes on wherever a leader
//! before it was interrupted, and a node joins all groups although each has a leader of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::{LogIndex, NodeId};
use boltq_meta::Registry;
use boltq_raft::{Member, MembershipError, Peer};
use tokio_util::sync::CancellationToken;

use super::groups::{AnyGroup, group_name};
use super::registry::MetaPlane;

/// How often members are looked at when nothing changes: a learner that catches up tells nobody.
const LOOK: Duration = Duration::from_millis(250);
/// Entries that a learner may be behind when it is promoted: it has them in no time, and until then a majority has to
/// wait for it.
const PROMOTION_LAG_MAX: u64 = 100;

/// What to do next about the members of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// Add it as a learner, or tell the others its new address.
    Add(Peer),
    Promote(NodeId),
    Demote(NodeId),
    Remove(NodeId),
}

impl Step {
    /// With nodes as logs name them everywhere: the id in hex, and the name if it has one.
    fn shown(&self, registry: &Registry) -> String {
        let named = |id: NodeId| match registry.node(id) {
            Some(node) => format!("{:016x} ({})", id.0, node.name),
            None => format!("{:016x}", id.0),
        };
        match self {
            Self::Add(peer) => format!("add {} at {}", named(peer.node), peer.address),
            Self::Promote(node) => format!("promote {}", named(*node)),
            Self::Demote(node) => format!("demote {}", named(*node)),
            Self::Remove(node) => format!("remove {}", named(*node)),
        }
    }
}

/// The next step towards what the registry wants, if there is one. `last` is the last entry of the log, `leader` this node.
fn next_step(members: &[Member], registry: &Registry, leader: NodeId, last: LogIndex) -> Option<Step> {
    // Without this, a registry that is not known yet would remove everybody.
    registry.cluster()?;
    let known: BTreeMap<NodeId, &Member> = members.iter().map(|member| (member.peer.node, member)).collect();
    let wanted = || registry.nodes();
    let missing = wanted().find(|node| {
        known
            .get(&node.node)
            .is_none_or(|member| member.peer.address != node.raft)
    });
    if let Some(node) = missing {
        return Some(Step::Add(Peer {
            node: node.node,
            address: node.raft.clone(),
        }));
    }
    let is_close = |member: &Member| {
        let matched = member.matched.map_or(0, |matched| matched.0);
        member.peer.node == leader || (member.matched.is_some() && matched + PROMOTION_LAG_MAX >= last.0)
    };
    let mut pairs = wanted().filter_map(|node| known.get(&node.node).map(|member| (node, *member)));
    let promote = pairs.find(|(node, member)| node.voter && !member.voter && is_close(member));
    if let Some((node, _)) = promote {
        return Some(Step::Promote(node.node));
    }
    let is_wanted =
        |member: &Member, voter: bool| registry.node(member.peer.node).is_some_and(|node| node.voter || !voter);
    let last_voter = members.iter().filter(|member| member.voter).count() <= 1;
    let superfluous = members
        .iter()
        .filter(|member| !is_wanted(member, member.voter))
        .filter(|member| !(member.voter && last_voter))
        // The leader goes last, as it is the one who does it.
        .min_by_key(|member| member.peer.node == leader)?;
    let node = superfluous.peer.node;
    Some(if registry.node(node).is_some() {
        Step::Demote(node)
    } else {
        Step::Remove(node)
    })
}

/// Does it for one group until `stop`.
pub(super) async fn keep(group: Arc<dyn AnyGroup>, meta: Arc<MetaPlane>, me: NodeId, stop: CancellationToken) {
    let mut changes = meta.changes();
    let mut warned = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            // The sender lives as long as `meta`.
            _ = changes.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        while let Some(step) = due(&*group, &meta, me) {
            let group_name = group_name(group.id());
            let shown = step.shown(&meta.registry());
            match take(&*group, &step).await {
                Ok(()) => {
                    warned = None;
                    tracing::info!(group = group_name, step = shown, "members changed");
                }
                Err(error) => {
                    let warning = Some((step, error.to_string()));
                    if warned != warning {
                        tracing::warn!(group = group_name, step = shown, %error, "members not changed; trying again");
                        warned = warning;
                    }
                    break;
                }
            }
        }
    }
}

fn due(group: &dyn AnyGroup, meta: &MetaPlane, me: NodeId) -> Option<Step> {
    let status = group.status();
    let last = status.last?;
    status
        .leading
        // It would be refused, four times a second.
        .then(|| !group.is_changing())
        .filter(|ready| *ready)
        .and_then(|_| next_step(&group.members(), &meta.registry(), me, last))
}

async fn take(group: &dyn AnyGroup, step: &Step) -> Result<(), MembershipError> {
    match step {
        Step::Add(peer) => group.add_learner(peer).await,
        Step::Promote(node) => group.promote(*node).await,
        Step::Demote(node) => group.demote(*node).await,
        Step::Remove(node) => group.remove(*node).await,
    }
}

#[cfg(test)]
mod tests {
    use boltq_core::{Applied, Millis, StateMachine};
    use boltq_meta::{NodeInfo, command};
    use bytes::BytesMut;

    use super::*;

    const LEADER: NodeId = NodeId(1);
    const LAST: LogIndex = LogIndex(1_000);

    fn address(node: u64) -> String {
        format!("n{node}:9100")
    }

    fn registry(nodes: &[(u64, bool)]) -> Registry {
        let mut registry = Registry::default();
        let mut apply = |write: &dyn Fn(&mut BytesMut)| {
            let mut out = BytesMut::new();
            write(&mut out);
            registry.apply(Millis(1), &out, 0, &mut Applied::default()).unwrap();
        };
        apply(&|out| command::found(out, 7));
        for (node, voter) in nodes {
            let info = NodeInfo {
                node: NodeId(*node),
                name: format!("n{node}"),
                raft: address(*node),
                messaging: String::new(),
                admin: String::new(),
                voter: *voter,
                version: String::new(),
            };
            apply(&|out| command::register(out, &info));
        }
        registry
    }

    fn member(node: u64, voter: bool, matched: Option<u64>) -> Member {
        Member {
            peer: Peer {
                node: NodeId(node),
                address: address(node),
            },
            voter,
            matched: matched.map(LogIndex),
            answers: true,
        }
    }

    fn next(members: &[Member], wanted: &[(u64, bool)]) -> Option<Step> {
        next_step(members, &registry(wanted), LEADER, LAST)
    }

    #[test]
    fn without_a_registry_nobody_is_touched() {
        let members = [member(1, true, None), member(2, true, Some(1_000))];
        assert_eq!(next_step(&members, &Registry::default(), LEADER, LAST), None);
    }

    #[test]
    fn a_node_comes_in_as_learner_and_is_promoted_when_it_is_close() {
        let wanted = [(1, true), (2, true)];
        let alone = member(1, true, None);
        let peer = Peer {
            node: NodeId(2),
            address: address(2),
        };
        assert_eq!(next(std::slice::from_ref(&alone), &wanted), Some(Step::Add(peer)));
        for (matched, step) in [
            (None, None),
            (Some(899), None),
            (Some(900), Some(Step::Promote(NodeId(2)))),
        ] {
            assert_eq!(next(&[alone.clone(), member(2, false, matched)], &wanted), step);
        }
        assert_eq!(next(&[alone, member(2, true, Some(0))], &wanted), None);
    }

    #[test]
    fn a_read_replica_is_never_promoted_and_a_voter_that_becomes_one_is_demoted() {
        let wanted = [(1, true), (2, false)];
        assert_eq!(
            next(&[member(1, true, None), member(2, false, Some(1_000))], &wanted),
            None
        );
        let step = next(&[member(1, true, None), member(2, true, Some(1_000))], &wanted);
        assert_eq!(step, Some(Step::Demote(NodeId(2))));
    }

    #[test]
    fn a_new_address_is_passed_on() {
        let mut moved = member(2, true, Some(1_000));
        moved.peer.address = "elsewhere:1".to_owned();
        let step = next(&[member(1, true, None), moved], &[(1, true), (2, true)]);
        assert!(matches!(step, Some(Step::Add(peer)) if peer.address == address(2)));
    }

    #[test]
    fn who_left_is_removed_the_leader_last_and_the_only_voter_never() {
        let members = [
            member(1, true, None),
            member(2, true, Some(1)),
            member(3, true, Some(1)),
        ];
        assert_eq!(next(&members, &[(3, true)]), Some(Step::Remove(NodeId(2))));
        assert_eq!(
            next(&[members[0].clone(), members[2].clone()], &[(3, true)]),
            Some(Step::Remove(LEADER))
        );
        assert_eq!(next(&members[..1], &[]), None);
    }

    #[test]
    fn steps_name_nodes_as_logs_do() {
        let registry = registry(&[(1, true)]);
        let add = Step::Add(Peer {
            node: LEADER,
            address: address(1),
        });
        assert_eq!(add.shown(&registry), "add 0000000000000001 (n1) at n1:9100");
        assert_eq!(Step::Remove(NodeId(0xabc)).shown(&registry), "remove 0000000000000abc");
    }

    /// The new one first, so that there are never fewer voters than needed.
    #[test]
    fn a_replaced_node_goes_after_its_successor_has_come() {
        let members = [member(1, true, None), member(2, true, Some(5))];
        let step = next(&members, &[(1, true), (3, true)]);
        assert!(matches!(step, Some(Step::Add(peer)) if peer.node == NodeId(3)));
        let with_learner = [members.as_slice(), &[member(3, false, Some(0))]].concat();
        assert_eq!(
            next(&with_learner, &[(1, true), (3, true)]),
            Some(Step::Remove(NodeId(2)))
        );
    }
}
