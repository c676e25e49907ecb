//! Who has room, and leadership that goes there.
//!
//! A leader whose device is full takes no more commands, and as long as it leads nobody does, though others have room. So it
//! hands leadership to a voter that has room, and leaders that are to lead elsewhere for other reasons go to one with room
//! too, if there is one.
//!
//! An entry needs a majority. If most voters have no room, whoever leads would fill what they keep for entries that make
//! some, and then nothing could be committed any more, be it an entry that makes room. So a leader knows of the others
//! whether they have room, and says when it should take nothing more: [`Group::too_few_have_room`]. It asks while entries come,
//! so often that what they keep lasts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
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

/// How often a leader looks who has room.
const LOOK: Duration = Duration::from_millis(250);
/// A device that is full for a moment, until a file goes, is no reason to have another leader.
const FULL_MAX: Duration = Duration::from_secs(2);
/// After an attempt to hand over: while it lasts, this node does not lead, and what settles messages has to wait.
const PAUSE: Duration = Duration::from_secs(10);
/// For a voter to say whether it has room.
const ASK: Duration = Duration::from_millis(500);
/// Entries that the next leader may lack: until it has them, nobody leads.
const LAG_MAX: u64 = 100;

/// Whether the voters have room, this node included.
struct Rooms {
    /// The others, and what they say; nothing, if they say nothing.
    others: Vec<(Member, Option<bool>)>,
    own: bool,
}

impl Rooms {
    fn majority(&self) -> usize {
        let voters = self.others.len() + 1;
        voters / 2 + 1
    }

    /// Whether so many have none that the rest is no majority.
    fn too_few(&self) -> bool {
        let full = self.others.iter().filter(|(_, room)| *room == Some(false)).count() + usize::from(!self.own);
        self.others.len() + 1 - full < self.majority()
    }

    /// To whom leadership should go, if this node has no room: not if too few others have some.
    fn heir(&self, last: u64) -> Option<NodeId> {
        let with_room = || self.others.iter().filter(|(_, room)| *room == Some(true));
        if with_room().count() < self.majority() {
            return None;
        }
        let is_close = |member: &Member| member.matched.is_some_and(|matched| matched.0 + LAG_MAX >= last);
        let fit = with_room().map(|(member, _)| member).filter(|member| is_close(member));
        fit.max_by_key(|member| member.matched).map(|member| member.peer.node)
    }
}

impl<H: GroupHandler> Inner<H> {
    /// As long as the group is there, and this node leads it, looks who has room.
    pub(crate) async fn watch_room(self: Arc<Self>) {
        let group = Group::from(self.clone());
        let too_few = &self.progress.too_few_have_room;
        let (mut full_since, mut tried, mut seen) = (None, None, None);
        loop {
            crate::beat::sleep(LOOK).await;
            let leads = self.leads_others() && self.progress.standing.get() == Standing::Fit;
            let own = self.log.space() == Space::Ample;
            if !leads || own {
                full_since = None;
            }
            if !leads {
                too_few.store(false, Ordering::Relaxed);
                continue;
            }
            let last = group.status().last;
            if own && last == seen && !too_few.load(Ordering::Relaxed) {
                // Nothing came that could have filled anything.
                continue;
            }
            seen = last;
            let rooms = group.rooms().await;
            if too_few.swap(rooms.too_few(), Ordering::Relaxed) != rooms.too_few() {
                tell(&group, rooms.too_few());
            }
            if own {
                continue;
            }
            let since: Instant = *full_since.get_or_insert_with(Instant::now);
            let just_tried = tried.is_some_and(|tried: Instant| tried.elapsed() < PAUSE);
            if since.elapsed() < FULL_MAX || just_tried {
                continue;
            }
            if let Some(heir) = rooms.heir(last.map_or(0, |last| last.0)) {
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

fn tell<H: GroupHandler>(group: &Group<H>, too_few: bool) {
    let group = group.id();
    if too_few {
        tracing::warn!(%group, "the disks of too many voters are full; publishes are refused until a majority has room");
    } else {
        tracing::info!(%group, "a majority of the voters has room again");
    }
}

impl<H: GroupHandler> Group<H> {
    /// Whether so many voters have no room that only what makes room should be proposed. Only who leads can tell, so it is
    /// false on other nodes.
    #[must_use]
    pub fn too_few_have_room(&self) -> bool {
        self.inner.progress.too_few_have_room.load(Ordering::Relaxed)
    }

    /// Whether a member has room for more now, as far as it can be asked.
    pub async fn has_room(&self, node: NodeId) -> bool {
        if node == self.node() {
            return self.log().space() == Space::Ample;
        }
        match self.peer(node) {
            Some(peer) => self.ask_for_room(&peer).await == Some(true),
            None => false,
        }
    }

    /// The voter that could best lead instead of this node, if this one leads: one that answers, has room if any has, and lacks
    /// the least.
    pub async fn heir(&self) -> Option<NodeId> {
        let others = self.rooms().await.others.into_iter();
        let there = others.filter(|(member, _)| member.answers);
        let best = there.max_by_key(|(member, room)| (*room, member.matched));
        best.map(|(member, _)| member.peer.node)
    }

    async fn rooms(&self) -> Rooms {
        let own = self.node();
        let members = self.members().into_iter();
        let asked = members
            .filter(|member| member.voter && member.peer.node != own)
            .map(async |member| {
                let room = match member.answers {
                    true => self.ask_for_room(&member.peer).await,
                    false => None,
                };
                (member, room)
            });
        Rooms {
            others: join_all(asked).await,
            own: self.log().space() == Space::Ample,
        }
    }

    async fn ask_for_room(&self, peer: &Peer) -> Option<bool> {
        let transport = self.transport()?;
        let asked = transport.call(peer, self.id(), Request::Room.encode(), ASK);
        match asked.await {
            Ok(answer) => wire::decode_room_answer(&answer).ok(),
            // A node of an earlier version does not know the question, and may have room.
            Err(TransportError::Refused { .. }) => Some(true),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use boltq_core::LogIndex;

    use super::*;

    const LAST: u64 = 1_000;

    /// Of this node, and of others, which have everything.
    fn rooms(own: bool, others: &[Option<bool>]) -> Rooms {
        let member = |node: u64| Member {
            peer: Peer {
                node: NodeId(node),
                address: String::new(),
            },
            voter: true,
            matched: Some(LogIndex(LAST)),
            answers: true,
        };
        Rooms {
            others: (2..).zip(others).map(|(node, room)| (member(node), *room)).collect(),
            own,
        }
    }

    #[test]
    fn who_says_nothing_may_have_room() {
        let (yes, no, silent) = (Some(true), Some(false), None);
        for (own, others, too_few) in [
            (true, vec![], false),
            (false, vec![], true),
            (true, vec![no], true),
            (true, vec![silent], false),
            (false, vec![yes, yes], false),
            (true, vec![no, silent], false),
            (true, vec![no, no], true),
            (false, vec![no, yes], true),
            (false, vec![no, yes, yes], true),
            (true, vec![no, yes, yes], false),
            (false, vec![no, yes, yes, silent], false),
            (false, vec![no, no, yes, yes], true),
        ] {
            assert_eq!(rooms(own, &others).too_few(), too_few, "{own} {others:?}");
        }
    }

    #[test]
    fn leadership_goes_to_one_of_a_majority_that_has_room_and_lacks_little() {
        let (yes, no) = (Some(true), Some(false));
        let mut three = rooms(false, &[yes, yes]);
        three.others[0].0.matched = Some(LogIndex(LAST - 1));
        assert_eq!(three.heir(LAST), Some(NodeId(3)));
        three.others[1].0.matched = Some(LogIndex(LAST - 101));
        assert_eq!(three.heir(LAST), Some(NodeId(2)));
        assert_eq!(rooms(false, &[no, yes]).heir(LAST), None);
        assert_eq!(rooms(false, &[None, yes]).heir(LAST), None);
        assert_eq!(rooms(false, &[no, yes, yes, yes]).heir(LAST), Some(NodeId(5)));
    }
}
