//! What becomes of messages that were published: they are done, fail, or move to another queue.

use boltq_core::{Applied, KeyHash, StorageEffect};

use crate::command::{Items, Settle};
use crate::machine::Machine;
use crate::outcome::{Effect, Outcome};
use crate::place::{DELAYED, KEYED, Place, Run, stream_id, stream_of};
use crate::publishing::Batch;
use crate::window::Part;

impl Machine {
    /// Finishes what is not done of `run`, and returns how many messages that is.
    pub(crate) fn finish(&mut self, run: Run, applied: &mut Applied<Effect>, mut missing: impl FnMut(Run)) -> u64 {
        let stream = run.stream;
        let known = stream_of(stream).and_then(|(id, lane)| {
            let queue = self.queues.get_mut(id.0 as usize)?;
            Some((
                lane,
                queue.windows.get_mut(lane)?.as_mut()?,
                &mut queue.due,
                &mut queue.keys,
            ))
        });
        let Some((lane, window, due, keys)) = known else {
            missing(run);
            return 0;
        };
        let mut done = 0;
        window.finish(&run.range(), |part| match part {
            Part::Fresh(range) => {
                let Run { first, count, .. } = Run::new(stream, &range);
                applied.storage.push(StorageEffect::Freed { stream, first, count });
                done += count;
                if lane == KEYED {
                    keys.finish(&range);
                }
            }
            Part::Missing(range) => missing(Run::new(stream, &range)),
        });
        if done > 0 && lane == DELAYED {
            due.remove(&run.range());
        }
        done
    }

    pub(crate) fn settle(&mut self, how: Settle, items: &Items<'_>, applied: &mut Applied<Effect>) -> Outcome {
        let mut missing = Vec::new();
        let done = items
            .runs()
            .map(|run| self.finish(run, applied, |run| missing.push(run)))
            .sum();
        match how {
            Settle::Ack => self.totals.acked += done,
            Settle::Expire => self.totals.expired += done,
        }
        Outcome::Settled { done, missing }
    }

    pub(crate) fn purge(&mut self, items: &Items<'_>, applied: &mut Applied<Effect>) -> Outcome {
        let count = items.runs().map(|run| self.finish(run, applied, |_| {})).sum();
        self.totals.purged += count;
        Outcome::Purged(count)
    }

    pub(crate) fn fail(&mut self, items: &Items<'_>, applied: &mut Applied<Effect>) -> Outcome {
        let mut missing = Vec::new();
        let mut done = 0;
        for (place, not_before) in items.times() {
            let window = stream_of(place.stream)
                .and_then(|(id, lane)| self.queues.get_mut(id.0 as usize)?.windows.get_mut(lane)?.as_mut());
            if window.is_some_and(|window| window.fail(place.seq.0, not_before)) {
                applied.effects.push(Effect::Failed { place });
                done += 1;
            } else {
                missing.push(Run::from(place));
            }
        }
        self.totals.nacked += done;
        Outcome::Settled { done, missing }
    }

    /// Both or neither: the message is done in its queue, and a record in the other one. With a `key` it stands there behind
    /// all others that have it.
    pub(crate) fn move_to(
        &mut self,
        place: Place,
        name: &str,
        (batch, key): (Batch, Option<KeyHash>),
        applied: &mut Applied<Effect>,
    ) -> Option<Place> {
        if self.finish(Run::from(place), applied, |_| {}) == 0 {
            return None;
        }
        let id = self.declare(name);
        let lane = if key.is_some() { KEYED } else { batch.lane };
        let queue = &mut self.queues[id.0 as usize];
        let range = queue.append(id, Batch { lane, ..batch }, &self.expiries, applied);
        if let Some(key) = key {
            queue.keys.push(range.start, key);
        }
        Some(Place::new(stream_id(id, lane), range.start))
    }
}
