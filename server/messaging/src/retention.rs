//! What the leader of each group does from time to time: records that are not to be kept go, and what a group has of topics is
//! brought in line with what their homes say.
//!
//! Nothing depends on when: the state says what is kept, and readers ask the home. A part is looked at at a time, so that a million
//! topics hold up nobody.

use boltq_core::Millis;
use boltq_raft::Proposal;
use boltq_stream::command::{self, Target};
use boltq_stream::{Outcome, Terms, group_of};

use crate::error::StreamError;
use crate::proposing::{Kind, Slot, Streams};

/// Topics in one look.
const LOOK_MAX: usize = 1_000;
/// Topics in one command.
const TRIM_TOPICS_MAX: usize = 100;

impl Streams {
    /// Does it for all groups that this node leads, until the node stops.
    pub async fn maintain(&self) {
        loop {
            tokio::select! {
                () = self.inner.stop.cancelled() => return,
                () = tokio::time::sleep(self.inner.settings.maintenance_interval) => {}
            }
            for number in 0..self.groups() {
                let slot = self.numbered(number);
                if let Err(error) = self.maintain_group(slot, number).await {
                    tracing::debug!(group = %slot.group.id(), %error, "not maintained; trying again");
                }
            }
        }
    }

    async fn maintain_group(&self, slot: &Slot, number: u32) -> Result<(), StreamError> {
        let mut after: Option<String> = None;
        while slot.plane.is_leading() {
            let now = Millis((self.inner.clock)() / 1_000_000);
            let (topics, last) = slot.plane.look(|machine| {
                let overdue = machine.overdue(after.as_deref(), LOOK_MAX, now);
                let topics: Vec<String> = overdue.topics.into_iter().map(str::to_owned).collect();
                (topics, overdue.last.map(str::to_owned))
            });
            for topics in topics.chunks(TRIM_TOPICS_MAX) {
                self.trim(slot, topics).await?;
            }
            self.align(slot, number, after.as_deref()).await?;
            if last.is_none() {
                break;
            }
            after = last;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn trim(&self, slot: &Slot, topics: &[String]) -> Result<(), StreamError> {
        loop {
            let mut proposal = Proposal::new();
            command::trim(proposal.begin(), topics.iter().map(String::as_str));
            let outcomes = self.propose(slot, proposal, Kind::Keeping).await?;
            match outcomes.first() {
                Some(Outcome::Trimmed { more: true, .. }) => {}
                _ => return Ok(()),
            }
        }
    }

    /// Brings topics of which the group has partitions, and that are at home elsewhere, in line.
    async fn align(&self, slot: &Slot, number: u32, after: Option<&str>) -> Result<(), StreamError> {
        let strangers: Vec<(String, Terms)> = slot.plane.look(|machine| {
            let looked = machine.topics_after(after).take(LOOK_MAX);
            let strangers = looked.filter(|(name, _)| group_of(name, 0, self.groups()) != number);
            strangers
                .map(|(name, topic)| (name.to_owned(), topic.terms()))
                .collect()
        });
        let differs = |name: &str, own: &Terms| self.terms(name).is_none_or(|terms| terms != *own);
        for (name, own) in strangers {
            if !differs(&name, &own) {
                continue;
            }
            // What this node knows of the home may be older than what the group has.
            self.catch_up(self.home(&name)).await?;
            let mut proposal = Proposal::new();
            match self.terms(&name) {
                Some(terms) if terms == own => continue,
                Some(terms) => command::adopt(proposal.begin(), &name, &terms),
                None => {
                    let target = Target {
                        topic: &name,
                        created: own.created,
                    };
                    command::delete(proposal.begin(), target);
                }
            }
            self.propose(slot, proposal, Kind::Keeping).await?;
        }
        Ok(())
    }
}
