//! Steps about messages that are not due yet.

use bytes::BytesMut;

use super::World;
use super::steps::HowScheduled;
use crate::command;
use crate::place::{DELAYED, stream_of};
use crate::tests::model::{Entry, State};
use crate::{Listing, Outcome, Place, QueueId, Run, Scheduled};

fn settled(outcome: Outcome) -> (u64, Vec<Place>) {
    match outcome {
        Outcome::Settled { done, missing } => (done, missing.into_iter().flat_map(Run::places).collect()),
        other => panic!("{other:?}"),
    }
}

impl World {
    pub(super) fn claim_scheduled(&mut self, place: Place) {
        let claimed = self.nodes.plane.claim_scheduled(place);
        assert_eq!(claimed, self.model.claim_scheduled(place));
        if claimed.is_ok() {
            self.scheduled.push(place);
        }
    }

    pub(super) fn end_scheduled(&mut self, place: Place, how: HowScheduled) {
        if let HowScheduled::Not = how {
            let now = self.nodes.now;
            self.nodes.plane.unclaim(place, now);
            let claimed = |entry: &Entry| entry.place == place && entry.state == State::Claimed;
            self.model.give_back(now, claimed);
        } else {
            self.foreign_scheduled(place, how);
        }
    }

    /// Whatever state the message is in.
    pub(super) fn foreign_scheduled(&mut self, place: Place, how: HowScheduled) {
        let mut out = BytesMut::new();
        let delayed = stream_of(place.stream).is_some_and(|(_, lane)| lane == DELAYED);
        match how {
            HowScheduled::Cancel => {
                command::cancel(&mut out, &[place]);
                let (outcome, freed) = self.nodes.apply(&out);
                let (done, missing) = match delayed {
                    true => self.model.finish(&[place]),
                    false => (Vec::new(), vec![place]),
                };
                let count = done.len() as u64;
                assert_eq!((settled(outcome), freed), ((count, missing), done));
                self.model.totals.purged += count;
            }
            HowScheduled::Reschedule(ms) => {
                let due = self.nodes.now.plus(ms);
                command::reschedule(&mut out, place, due);
                let (outcome, freed) = self.nodes.apply(&out);
                let there = self.model.reschedule(place, due, self.nodes.now);
                let missing = if there { Vec::new() } else { vec![place] };
                assert_eq!((settled(outcome), freed), ((u64::from(there), missing), Vec::new()));
            }
            HowScheduled::Not => {}
        }
    }

    /// In pages, however many messages those have.
    pub(super) fn check_listing(&self, id: QueueId) {
        let expected = self.model.scheduled(id);
        for max in [1, 3, 100] {
            let (mut listed, mut after): (Vec<Scheduled>, _) = (Vec::new(), None);
            loop {
                let mut listing = Listing::new(after, max);
                while self.nodes.plane.list_scheduled(id, &mut listing) {}
                let (page, more) = listing.finish(id);
                after = page.last().map(|last| (last.due, last.place.seq));
                listed.extend(page);
                assert_eq!(more, listed.len() < expected.len());
                if !more {
                    break;
                }
            }
            assert_eq!(listed, expected);
        }
    }
}
