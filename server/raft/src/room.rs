//! Leadership goes where there is room.
//!
//! A leader whose device is full takes no more commands, and as long as it leads nobody does, though others have room. So it
//! hands leadership to a voter that has room, and leaders that are to lead elsewhere for other reasons go to one with room
//! too, if there is one. Whether a node has room is asked when it matters, so that nothing that is known of it is old.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::NodeId;
use boltq_log::Space;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::group::{Group, GroupHandler, Inner};
use crate::membership::Member;
use crate::standing::Standing;
use crate::transport::{Peer, TransportError};
use crate::wire::{self, Request};

/// How often a leader looks whether it has room.
const LOOK: Duration = Duration::from_millis(250);
/// A device that is full for a moment, until a file goes, is no reason to have another leader.
const FULL_MAX: Duration = Duration::from_secs(2);
/// After an attempt to hand over: while it lasts, this node does not lead, and what settles messages has to wait.
const PAUSE: Duration = Duration::from_secs(10);
/// For a voter to say whether it has room.
const ASK: Duration = Duration::from_millis(500);
/// Entries that the next leader may lack: until it has them, nobody leads.
const LAG_MAX: u64 = 100;

impl<H: GroupHandler> Inner<H> {
    /// As long as the group is there, hands leadership over when this node leads and has had no room for a while.
    pub(crate) async fn watch_room(self: Arc<Self>) {
        let group = Group::from(self.clone());
        let mut full_since = None;
        let mut tried = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let leads = self.leads_others() && *self.progress.standing.borrow() == Standing::Fit;
            if !leads || self.log.space() == Space::Ample {
                full_since = None;
                continue;
            }
            let full_since = *full_since.get_or_insert_with(Instant::now);
            let just_tried = tried.is_some_and(|tried: Instant| tried.elapsed() < PAUSE);
            if full_since.elapsed() < FULL_MAX || just_tried {
                continue;
            }
            if let Some(heir) = group.heir_with_room().await {
                tracing::warn!(
                    group = %self.config.group, to = %format_args!("{:016x}", heir.0),
                    "the disk of this node is full; leadership goes to a node that has room"
                );
                tried = Some(Instant::now());
                group.hand_over(heir).await;
            }
        }
    }
}

impl<H: GroupHandler> Group<H> {
    /// Whether a member has room for more now, as far as it can be asked.
    pub async fn has_room(&self, node: NodeId) -> bool {
        if node == self.node() {
            return self.log().space() == Space::Ample;
        }
        let member = self.members().into_iter().find(|member| member.peer.node == node);
        match member {
            Some(member) => self.ask_for_room(&member.peer).await,
            None => false,
        }
    }

    async fn ask_for_room(&self, peer: &Peer) -> bool {
        let Some(transport) = self.transport() else {
            return false;
        };
        let asked = transport.call(peer, self.id(), Request::Room.encode(), ASK);
        match asked.await {
            Ok(answer) => wire::decode_room_answer(&answer).unwrap_or(false),
            // A node of an earlier version does not know the question.
            Err(TransportError::Refused { .. }) => true,
            Err(_) => false,
        }
    }

    /// The voter that could best lead instead of this node, if this one leads: one that answers, has room if any has, and lacks
    /// the least.
    pub async fn heir(&self) -> Option<NodeId> {
        let candidates = self.candidates().await.into_iter();
        let best = candidates.max_by_key(|(member, room)| (*room, member.matched));
        best.map(|(member, _)| member.peer.node)
    }

    /// As [`Group::heir`], if that one has room and can lead at once.
    async fn heir_with_room(&self) -> Option<NodeId> {
        let last = self.status().last?.0;
        let is_close = |member: &Member| member.matched.is_some_and(|matched| matched.0 + LAG_MAX >= last);
        let candidates = self.candidates().await.into_iter();
        let fit = candidates.filter(|(member, room)| *room && is_close(member));
        let best = fit.max_by_key(|(member, _)| member.matched);
        best.map(|(member, _)| member.peer.node)
    }

    /// The other voters that answer, and whether they have room.
    async fn candidates(&self) -> Vec<(Member, bool)> {
        let own = self.node();
        let members = self.members().into_iter();
        let others = members.filter(|member| member.voter && member.answers && member.peer.node != own);
        let asked = others.map(async |member| {
            let room = self.ask_for_room(&member.peer).await;
            (member, room)
        });
        join_all(asked).await
    }
}
