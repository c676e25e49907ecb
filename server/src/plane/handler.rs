//! What the plane does with the entries of its group: commands go to the queues or to the cache, both of which are one state.

use std::sync::atomic::Ordering;

use boltq_core::{Applied, DecodeError, Term};
use boltq_log::EntryId;
use boltq_queue::{Effect, Plane};
use boltq_raft::{ApplyError, Captured, Commands, GroupHandler};
use tokio::sync::broadcast;

use super::cache::CHANGES_MAX;
use super::{Answer, DefaultTtls, QueuePlane, sharing, state};

impl GroupHandler for QueuePlane {
    type Outcome = Answer;

    fn apply(&self, entry: EntryId, commands: Commands<'_>) -> Result<Vec<Answer>, ApplyError> {
        let time = commands.time();
        self.with(|plane| {
            let mut applied = Applied::<Effect>::default();
            let mut outcomes = Vec::new();
            for command in commands {
                let command = command?;
                outcomes.push(if boltq_kv::command::is_command(command.bytes) {
                    self.apply_to_cache(time, &command)?
                } else {
                    let before = applied.effects.len();
                    let outcome = plane.apply(time, command.bytes, command.offset, &mut applied)?;
                    self.hub
                        .follow(&applied.effects[before..], command.bytes, command.offset);
                    Answer::Queue(outcome)
                });
            }
            self.log
                .place(entry.index, &applied.storage)
                .map_err(|error| ApplyError::Place(error.to_string()))?;
            self.follow_queues(plane, &applied.effects);
            Ok(outcomes)
        })
    }

    fn share(outcome: &mut Answer, items: u32) -> Answer {
        sharing::take_front(outcome, u64::from(items))
    }

    fn capture(&self) -> Captured {
        // Both are of the same moment, as nothing is applied in between.
        let queues = self.plane.lock().machine().capture();
        let cache = self.cache.read().capture();
        Box::new(move || state::write(&queues, cache))
    }

    fn restore(&self, state: &[u8]) -> Result<(), DecodeError> {
        let (queues, cache) = state::read(state)?;
        let mut plane = self.plane.lock();
        let mut there = self.cache.write();
        *plane = Plane::new(queues, self.settings);
        self.waiters.write().retain(|queue, waiters| {
            let there = plane.queue_name(*queue).is_some();
            if !there {
                waiters.close();
            }
            there
        });
        *self.default_ttls.write() = DefaultTtls::of(plane.machine());
        *there = cache;
        *self.changes.write() = broadcast::Sender::new(CHANGES_MAX);
        Ok(())
    }

    fn leadership(&self, leading: Option<Term>) {
        let retired = self.with(|plane| {
            let retired = plane.follow();
            if let Some(term) = leading {
                plane.lead_by_chance(term, self.now(), (self.sources.random)());
            }
            retired
        });
        // Not under the lock: it may have had millions of messages.
        drop(retired);
        self.leading.store(leading.is_some(), Ordering::Release);
        self.leadership.notify_waiters();
        if leading.is_none() {
            // Whoever waits for a message has to look elsewhere.
            for waiters in self.waiters.read().values() {
                waiters.ready.notify_waiters();
            }
            // And so has who waits for room: the leases that it held are no more, and nobody settles them here.
            for room in self.rooms.read().values() {
                room.notify_one();
            }
        }
        match leading {
            Some(term) => tracing::info!(term = term.0, "this node leads the queue plane"),
            None => tracing::info!("this node no longer leads the queue plane"),
        }
    }
}

impl QueuePlane {
    /// Tells who waits for queues that they are no more, and follows what queues say of messages without a time to live.
    fn follow_queues(&self, plane: &Plane, effects: &[Effect]) {
        let mut changed = false;
        for effect in effects {
            match effect {
                Effect::QueueDeleted { queue } => {
                    changed = true;
                    if let Some(waiters) = self.waiters.write().remove(queue) {
                        waiters.close();
                    }
                }
                Effect::QueueChanged { .. } => changed = true,
                Effect::Failed { .. } | Effect::Rescheduled { .. } | Effect::TopicPublished { .. } => {}
            }
        }
        if changed {
            *self.default_ttls.write() = DefaultTtls::of(plane.machine());
        }
    }
}
