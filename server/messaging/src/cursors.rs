//! Positions of readers: replicated, and never going back.

use std::collections::BTreeMap;

use boltq_core::Seq;
use boltq_raft::Proposal;
use boltq_stream::command::{self, CommitWriter, CursorOf, Target};
use boltq_stream::{CURSOR_NAME_BYTES_MAX, Commit, Outcome, group_of};
use futures_util::future::join_all;

use crate::error::StreamError;
use crate::proposing::{Kind, Streams};
use crate::read::not_found;

/// Positions that one look goes over at most.
const LOOK_MAX: usize = 1_000;

/// A reader of a partition, and the sequence that it wants next.
#[derive(Debug, Clone, Copy)]
pub struct NewCursor<'a> {
    /// What it reads.
    pub topic: &'a str,
    /// What it reads of it.
    pub partition: u32,
    /// Its group.
    pub group: &'a str,
    /// Its name in the group; may be empty.
    pub member: &'a str,
    /// What it wants next: everything before it is done.
    pub next: u64,
}

/// Where a position is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The sequence that is wanted next. Further on than was committed, if it had been there before; not beyond the end.
    pub next: Seq,
}

/// A position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorInfo {
    /// The partition.
    pub partition: u32,
    /// Its group.
    pub group: String,
    /// Its name in the group.
    pub member: String,
    /// The sequence that is wanted next.
    pub next: Seq,
    /// What the next record of the partition will get.
    pub end: Seq,
}

impl Streams {
    /// Moves positions on, and returns when that is stored: one result for each, in their order.
    pub async fn commit(&self, cursors: &[NewCursor<'_>]) -> Vec<Result<Committed, StreamError>> {
        let mut results: Vec<Option<Result<Committed, StreamError>>> = vec![None; cursors.len()];
        let mut groups: BTreeMap<u32, Vec<(usize, CursorOf<'_>)>> = BTreeMap::new();
        for (index, cursor) in cursors.iter().enumerate() {
            match self.cursor_of(cursor).await {
                Ok(of) => groups
                    .entry(group_of(cursor.topic, cursor.partition, self.groups()))
                    .or_default()
                    .push((index, of)),
                Err(error) => results[index] = Some(Err(error)),
            }
        }
        let proposed = groups.into_iter().map(|(group, own)| async move {
            let mut proposal = Proposal::new();
            let out = proposal.begin();
            let mut writer = CommitWriter::begin(out, self.inner.settings.cursors_max);
            for (index, of) in &own {
                writer.push(out, of, cursors[*index].next);
            }
            writer.finish(out);
            (self.propose(self.numbered(group), proposal, Kind::Keeping).await, own)
        });
        for (outcomes, own) in join_all(proposed).await {
            let commits = match outcomes.map(|outcomes| outcomes.into_iter().next()) {
                Ok(Some(Outcome::Committed(commits))) => commits.into_iter().map(Ok).collect(),
                Ok(_) => vec![Err(StreamError::Stopped); own.len()],
                Err(error) => vec![Err(error); own.len()],
            };
            for ((index, _), commit) in own.into_iter().zip(commits) {
                results[index] = Some(commit.and_then(|commit| match commit {
                    Commit::At(next) => Ok(Committed { next }),
                    // Nothing was ever written there: whoever reads it wants the first record.
                    Commit::NoPartition => Ok(Committed { next: Seq::FIRST }),
                    Commit::Full => Err(StreamError::CursorsFull),
                }));
            }
        }
        let stopped = |result: Option<_>| result.unwrap_or(Err(StreamError::Stopped));
        results.into_iter().map(stopped).collect()
    }

    /// Forgets positions of a group of readers of a partition, those of all members if none is named. Returns how many there were.
    ///
    /// # Errors
    /// There is no such topic or partition.
    pub async fn forget(
        &self,
        topic: &str,
        partition: u32,
        group: &str,
        member: Option<&str>,
    ) -> Result<u64, StreamError> {
        let cursor = NewCursor {
            topic,
            partition,
            group,
            member: member.unwrap_or_default(),
            next: 1,
        };
        let of = self.cursor_of(&cursor).await?;
        let slot = self.slot(topic, partition);
        let mut forgotten = 0;
        loop {
            let members: Vec<String> = match member {
                Some(member) => vec![member.to_owned()],
                None => slot.plane.look(|machine| {
                    let partition = machine.topic(topic).and_then(|topic| topic.partition(partition));
                    let members = partition.into_iter().flat_map(|partition| {
                        let members = machine.members(partition.stream(), group, None);
                        members.map(|(member, _)| member.to_owned()).take(LOOK_MAX)
                    });
                    members.collect()
                }),
            };
            if members.is_empty() {
                return Ok(forgotten);
            }
            let mut proposal = Proposal::new();
            let cursors = members.iter().map(|member| CursorOf { member, ..of });
            command::forget(proposal.begin(), cursors);
            match self.propose(slot, proposal, Kind::Keeping).await?.first() {
                Some(Outcome::Forgotten(count)) => forgotten += u64::from(*count),
                _ => return Err(StreamError::Stopped),
            }
            if member.is_some() || members.len() < LOOK_MAX {
                return Ok(forgotten);
            }
            // Before looking for more of them.
            self.catch_up(slot).await?;
        }
    }

    /// Positions of a partition behind a group and a member, up to `max`, and whether there are more. Groups with shorter names
    /// come first. `group`: of this one only.
    ///
    /// # Errors
    /// There is no such topic or partition.
    pub async fn cursors(
        &self,
        topic: &str,
        partition: u32,
        group: Option<&str>,
        after: Option<(&str, &str)>,
        max: usize,
        linearizable: bool,
    ) -> Result<(Vec<CursorInfo>, bool), StreamError> {
        let slot = self.slot(topic, partition);
        if linearizable {
            self.catch_up(self.home(topic)).await?;
            self.catch_up(slot).await?;
        }
        let view = self.view(topic, partition)?.ok_or_else(|| not_found(topic))?;
        let mut cursors: Vec<CursorInfo> = slot.plane.look(|machine| {
            let own = machine.topic(topic).filter(|own| own.terms().created == view.created);
            let Some(stream) = own.and_then(|own| own.partition(partition)).map(|own| own.stream()) else {
                return Vec::new();
            };
            let info = |group: &str, member: &str, next| CursorInfo {
                partition,
                group: group.to_owned(),
                member: member.to_owned(),
                next,
                end: view.end,
            };
            match group {
                Some(group) => {
                    let after = after.map(|(_, member)| member);
                    let members = machine.members(stream, group, after).take(max + 1);
                    members.map(|(member, next)| info(group, member, next)).collect()
                }
                None => {
                    let cursors = machine.cursors_after(stream, after).take(max + 1);
                    cursors.map(|(group, member, next)| info(group, member, next)).collect()
                }
            }
        });
        let more = cursors.len() > max;
        cursors.truncate(max);
        Ok((cursors, more))
    }

    /// The cursor in the topic that there is.
    async fn cursor_of<'a>(&self, cursor: &NewCursor<'a>) -> Result<CursorOf<'a>, StreamError> {
        let (group, member) = (cursor.group.len(), cursor.member.len());
        if group == 0 || group > CURSOR_NAME_BYTES_MAX || member > CURSOR_NAME_BYTES_MAX {
            return Err(StreamError::InvalidCursorName);
        }
        let home = self.home(cursor.topic);
        let mut view = self.view(cursor.topic, cursor.partition);
        // It may have been created just now, on another node.
        if !matches!(view, Ok(Some(_))) && !home.plane.is_leading() {
            self.catch_up(home).await?;
            view = self.view(cursor.topic, cursor.partition);
        }
        let view = view?.ok_or_else(|| not_found(cursor.topic))?;
        Ok(CursorOf {
            target: Target {
                topic: cursor.topic,
                created: view.created,
            },
            partition: cursor.partition,
            group: cursor.group,
            member: cursor.member,
        })
    }
}
