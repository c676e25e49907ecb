//! More replicas than a majority.
//!
//! A majority is what commits an entry. Who wants an answer to mean more, that so many voters have the entry, gets it by
//! waiting after the entry was applied here: nothing but the answer is held up, so the others see and settle what it says
//! meanwhile. The voters are counted by what they confirmed, each for itself, as durable as its log is set to be. Learners do
//! not count: what only they have besides too few voters does not decide who leads.
//!
//! A task looks at the replication whenever it moves, and tells those who wait. Nothing of this runs if a majority will do.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::LogIndex;
use openraft::async_runtime::WatchReceiver;
use openraft::{Instant as _, RaftMetrics, ServerState};
use tokio::time::Instant;

use crate::beat;
use crate::error::InSyncError;
use crate::group::{Group, GroupHandler};
use crate::types::TypeConfig;
use crate::watched::Watched;

/// That a voter falls silent moves nothing, so the task looks without being told.
const LOOK: Duration = Duration::from_millis(100);

/// What the task sees, and who waits for it.
pub(crate) struct InSync {
    wanted: usize,
    seen: Watched<Seen>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// Voters that answer, as far as anybody has to care: at least `wanted` if a majority will do, or another node leads.
    answering: usize,
    /// `wanted` voters have every entry up to this one.
    reached: u64,
    /// How often this node stopped leading. Who waits is told nothing after that.
    leaderships_lost: u64,
}

impl InSync {
    /// None: a majority is always at least so many.
    pub(crate) fn new(wanted: usize) -> Option<Arc<Self>> {
        let seen = Seen {
            answering: wanted,
            reached: 0,
            leaderships_lost: 0,
        };
        (wanted > 1).then(|| {
            Arc::new(Self {
                wanted,
                seen: Watched::new(seen),
            })
        })
    }

    /// Whether enough voters answer.
    pub(crate) fn check(&self) -> Result<(), InSyncError> {
        let answering = self.seen.get().answering;
        if answering >= self.wanted {
            return Ok(());
        }
        Err(InSyncError::TooFewAnswer {
            answering,
            wanted: self.wanted,
        })
    }

    /// Waits until enough voters have an entry that was applied here.
    pub(crate) async fn reached(&self, index: LogIndex) -> Result<(), InSyncError> {
        let mut seen = self.seen.watch();
        let lost = seen.get().leaderships_lost;
        let decided = |seen: &Seen| seen.reached >= index.0 || seen.leaderships_lost > lost;
        let reached = seen.until(decided).await.is_some_and(|seen| seen.reached >= index.0);
        reached
            .then_some(())
            .ok_or(InSyncError::Unknown { wanted: self.wanted })
    }

    /// Nobody is told anything more.
    pub(crate) fn close(&self) {
        self.seen.change(|seen| seen.leaderships_lost += 1);
    }

    fn see(&self, standing: Option<Standing>) {
        self.seen.change_if(|seen| {
            let before = *seen;
            seen.answering = standing.map_or(self.wanted, |standing| standing.answering);
            seen.reached = standing.map_or(0, |standing| standing.reached);
            *seen != before
        });
    }
}

/// Looks until the group ends.
pub(crate) async fn watch<H: GroupHandler>(in_sync: Arc<InSync>, group: Group<H>) {
    let mut metrics = group.raft().metrics();
    let silence_max = group.silence_max();
    let mut leads_since = None;
    loop {
        let standing = {
            let metrics = metrics.borrow_watched();
            let leads = metrics.state == ServerState::Leader;
            if !leads && leads_since.take().is_some() {
                in_sync.close();
            }
            leads.then(|| {
                let since = *leads_since.get_or_insert_with(Instant::now);
                // Who leads lately has not asked everybody yet.
                let all_answer = since.elapsed() < silence_max;
                standing(&metrics, in_sync.wanted, |heard| all_answer || heard < silence_max)
            })
        };
        in_sync.see(standing);
        tokio::select! {
            biased;
            changed = metrics.changed() => if changed.is_err() {
                in_sync.close();
                return;
            },
            () = beat::sleep(LOOK) => {}
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    answering: usize,
    reached: u64,
}

/// `answers`: whether who was heard so long ago is there.
fn standing(metrics: &RaftMetrics<TypeConfig>, wanted: usize, answers: impl Fn(Duration) -> bool) -> Standing {
    let voters = metrics.membership_config.membership().voter_ids();
    let voters: Vec<Voter> = voters
        .map(|id| {
            let matched = metrics
                .replication
                .as_ref()
                .and_then(|matched| matched.get(&id)?.as_ref());
            let heard = metrics.heartbeat.as_ref().and_then(|heard| heard.get(&id)?.as_deref());
            Voter {
                matched: matched.map_or(0, |id| id.index()),
                answers: id == metrics.id || answers(heard.map_or(Duration::MAX, |heard| heard.elapsed())),
            }
        })
        .collect();
    count(voters, wanted)
}

struct Voter {
    /// The last entry that it has.
    matched: u64,
    answers: bool,
}

fn count(mut voters: Vec<Voter>, wanted: usize) -> Standing {
    if wanted <= voters.len() / 2 + 1 {
        return Standing {
            answering: wanted,
            reached: u64::MAX,
        };
    }
    voters.sort_unstable_by_key(|voter| std::cmp::Reverse(voter.matched));
    Standing {
        answering: voters.iter().filter(|voter| voter.answers).count(),
        reached: voters.get(wanted - 1).map_or(0, |voter| voter.matched),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing_of(voters: &[(u64, bool)], wanted: usize) -> (usize, u64) {
        let voters = voters.iter().map(|&(matched, answers)| Voter { matched, answers });
        let Standing { answering, reached } = count(voters.collect(), wanted);
        (answering, reached)
    }

    #[test]
    fn what_the_wanted_number_of_voters_has_is_reached() {
        let voters = [(9, true), (3, true), (7, false)];
        assert_eq!(standing_of(&voters, 3), (2, 3));
        assert_eq!(
            standing_of(&[(9, true), (9, true), (9, true), (4, true), (6, true)], 4),
            (5, 6)
        );
        // A cluster that is too small has it never.
        assert_eq!(standing_of(&voters, 4), (2, 0));
        assert_eq!(standing_of(&[(9, true)], 3), (1, 0));
    }

    #[test]
    fn a_majority_is_waited_for_by_nobody() {
        assert_eq!(standing_of(&[(9, true), (3, false), (7, false)], 2), (2, u64::MAX));
        assert_eq!(
            standing_of(&[(9, true), (3, false), (7, false), (0, false)], 3),
            (3, u64::MAX)
        );
        assert!(InSync::new(0).is_none() && InSync::new(1).is_none());
    }

    #[tokio::test]
    async fn who_waits_is_told_when_it_is_reached_or_the_leadership_ends() {
        let in_sync = InSync::new(3).unwrap();
        let state = |answering, reached| in_sync.see(Some(Standing { answering, reached }));
        assert!(
            in_sync.check().is_ok(),
            "until something is known, the group says who leads"
        );
        state(3, 4);
        in_sync.reached(LogIndex(4)).await.unwrap();
        let mut later = Box::pin(in_sync.reached(LogIndex(5)));
        assert!(futures_util::poll!(&mut later).is_pending());
        state(2, 5);
        later.await.unwrap();
        let refused = in_sync.check().unwrap_err();
        assert!(
            matches!(
                refused,
                InSyncError::TooFewAnswer {
                    answering: 2,
                    wanted: 3
                }
            ),
            "{refused}"
        );
        let mut never = Box::pin(in_sync.reached(LogIndex(6)));
        assert!(futures_util::poll!(&mut never).is_pending());
        in_sync.close();
        in_sync.see(None);
        assert!(matches!(never.await, Err(InSyncError::Unknown { wanted: 3 })));
        assert!(in_sync.check().is_ok());
    }
}
