//! Spreads leadership evenly over the voters.
//!
//! Every group has a node that ought to lead it: groups are dealt to the voters in turn. Whoever leads a group that ought
//! to be elsewhere hands it over, once things have been quiet for a while, unless that node has no room. So after a restart
//! leadership comes back by itself, and while nodes come and go nothing moves.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::NodeId;
use boltq_raft::Member;
use tokio_util::sync::CancellationToken;

use super::groups::{AnyGroup, group_name};

const LOOK: Duration = Duration::from_secs(1);
/// Looks that have to find the same before anything moves.
const QUIET_LOOKS: u32 = 10;
/// Entries that the other node may be behind: it takes over when it has them, and until then nobody leads.
const LAG_MAX: u64 = 100;

/// Who ought to lead the group that is at `index` among all groups.
fn preferred(members: &[Member], index: usize) -> Option<&Member> {
    let voters: Vec<&Member> = members.iter().filter(|member| member.voter).collect();
    let turn = index.checked_rem(voters.len())?;
    voters.get(turn).copied()
}

/// Does it for all groups until `stop`.
pub(super) async fn keep(groups: Vec<Arc<dyn AnyGroup>>, me: NodeId, stop: CancellationToken) {
    let mut quiet = vec![(None, 0); groups.len()];
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        for (index, group) in groups.iter().enumerate() {
            let target = target(&**group, index, me);
            let (seen, looks) = &mut quiet[index];
            if target.is_none() || *seen != target {
                (*seen, *looks) = (target, 0);
                continue;
            }
            *looks += 1;
            if let Some(to) = target.filter(|_| *looks >= QUIET_LOOKS) {
                *looks = 0;
                if !group.has_room(to).await {
                    continue;
                }
                tracing::info!(group = group_name(group.id()), to = %format_args!("{:016x}", to.0), "handing over leadership, to spread it evenly");
                group.hand_over(to).await;
            }
        }
    }
}

/// To whom this node would hand the group over now.
fn target(group: &dyn AnyGroup, index: usize, me: NodeId) -> Option<NodeId> {
    let status = group.status();
    let last = status.last.filter(|_| status.leading)?;
    let members = group.members();
    let preferred = preferred(&members, index).filter(|member| member.peer.node != me && member.answers)?;
    let matched = preferred.matched?;
    (matched.0 + LAG_MAX >= last.0).then_some(preferred.peer.node)
}

/// Hands over everything that this node leads, to whoever can best lead it, and waits until it is done or `within` is over.
pub(super) async fn hand_over_all(groups: &[Arc<dyn AnyGroup>], within: Duration) {
    let done = async {
        loop {
            let mut leading = false;
            for group in groups.iter().filter(|group| group.status().leading) {
                if let Some(heir) = group.heir().await {
                    leading = true;
                    group.hand_over(heir).await;
                }
            }
            if !leading {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    if tokio::time::timeout(within, done).await.is_err() {
        tracing::warn!("leadership was not handed over in time; the others will elect a leader");
    }
}

#[cfg(test)]
mod tests {
    use boltq_raft::Peer;

    use super::*;

    #[test]
    fn groups_are_dealt_to_the_voters_in_turn() {
        let member = |node, voter| Member {
            peer: Peer {
                node: NodeId(node),
                address: String::new(),
            },
            voter,
            matched: None,
            answers: true,
        };
        let members = [member(1, true), member(2, false), member(3, true), member(4, true)];
        let leaders: Vec<u64> = (0..5)
            .filter_map(|index| preferred(&members, index))
            .map(|member| member.peer.node.0)
            .collect();
        assert_eq!(leaders, [1, 3, 4, 1, 3]);
        assert!(preferred(&members[1..2], 0).is_none());
    }
}
