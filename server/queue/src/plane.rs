//! The queue plane of a node: the replicated machine, and the dispatch while the node leads.
//!
//! The calls that hand out or settle messages do something on a leader only. Elsewhere nothing is handed out and nothing is
//! found: ask [`Plane::is_leading`] first, and send the caller to the leader.
//!
//! A settlement is three steps, and the second may fail: [`Plane::claim`], then propose the command, then either
//! [`Plane::apply`] of that command ends the claim, or [`Plane::unclaim`] does. A proposal whose fate is unknown has to
//! keep its claim until the leadership ends.

use std::sync::Arc;

use boltq_core::{Applied, DecodeError, MessageId, Millis, StateMachine, Term};

use crate::delivery::{Claim, ClaimError, Handle, Leased};
use crate::dispatch::Dispatch;
use crate::lending::Wanted;
use crate::machine::{Machine, Queue};
use crate::outcome::{Effect, Outcome, QueueStats, Totals};
use crate::place::{ConsumerId, LeaseNo, Place, QueueId, Run};
use crate::settings::Settings;

/// Numbers of leases for each term, so that the lease of an earlier leader is known by its number. At a million leases per
/// second they last for 6 days at least; after that the next numbers are taken.
const LEASES_PER_TERM_BITS: u32 = 40;
/// openraft may elect two nodes in one term. For both of them to lead, votes and pauses have to meet strangely, and then they
/// should not give the same numbers: each begins somewhere in the first half.
const START_BITS: u32 = LEASES_PER_TERM_BITS - 1;
/// An election every second for 90 days; then numbers go on rising from where they are.
const TERM_MAX: u64 = (1 << 23) - 1;

/// What a leader knew, see [`Plane::follow`].
#[derive(Debug)]
pub struct Retired {
    _dispatch: Option<Dispatch>,
}

/// The queue plane of a node.
#[derive(Debug)]
pub struct Plane {
    pub(crate) machine: Machine,
    settings: Settings,
    pub(crate) dispatch: Option<Dispatch>,
    /// While the node does not lead.
    next_lease: LeaseNo,
    first_lease: LeaseNo,
}

impl Plane {
    /// A plane that does not lead.
    #[must_use]
    pub fn new(machine: Machine, settings: Settings) -> Self {
        Self {
            machine,
            settings,
            dispatch: None,
            next_lease: LeaseNo(1),
            first_lease: LeaseNo(1),
        }
    }

    /// The replicated state.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Applies a command, on every replica. See [`StateMachine::apply`].
    ///
    /// # Errors
    /// The bytes are no command of this version; nothing has changed, and the node has to stop.
    pub fn apply(
        &mut self,
        time: Millis,
        command: &[u8],
        offset: u32,
        applied: &mut Applied<Effect>,
    ) -> Result<Outcome, DecodeError> {
        let (storage, effects) = (applied.storage.len(), applied.effects.len());
        let outcome = self.machine.apply(time, command, offset, applied)?;
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.follow(&self.machine, &applied.storage[storage..], &applied.effects[effects..]);
        }
        Ok(outcome)
    }

    /// Begins to hand messages out as the leader of a term: everything that is not done is available, delayed messages once they are due, and
    /// failed ones after their backoff. All entries of earlier leaders should be applied before.
    ///
    /// Of delayed messages that are due some thousand at most are ready at once; [`Plane::tick`] wakes the others, in the order
    /// of their due times. Until then they can be settled and purged as if they were ready.
    pub fn lead(&mut self, term: Term, now: Millis) {
        self.lead_by_chance(term, now, 0);
    }

    /// As [`Plane::lead`]; where the numbers of leases begin within those of the term depends on `chance`, so that two nodes
    /// that lead one term give different ones.
    pub fn lead_by_chance(&mut self, term: Term, now: Millis, chance: u64) {
        self.follow();
        let first = (term.0.min(TERM_MAX) << LEASES_PER_TERM_BITS) + (chance >> (u64::BITS - START_BITS));
        let first = self.next_lease.max(LeaseNo(first));
        self.first_lease = first;
        self.dispatch = Some(Dispatch::new(&self.machine, now, first));
    }

    /// Ends the leadership, and with it all leases and claims. What is returned is all that was known of them: to drop it takes time
    /// if there was much, so whoever has a lock gives that back before.
    pub fn follow(&mut self) -> Retired {
        let dispatch = self.dispatch.take();
        if let Some(dispatch) = &dispatch {
            self.next_lease = dispatch.leases.next();
        }
        Retired { _dispatch: dispatch }
    }

    /// Whether messages are handed out here.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.dispatch.is_some()
    }

    /// Leases with smaller numbers ended with an earlier leadership. A term may have several, of one node.
    #[must_use]
    pub fn first_lease(&self) -> LeaseNo {
        self.first_lease
    }

    /// The queue of that name, if it exists.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<QueueId> {
        self.machine.queue(name)
    }

    /// The name of a queue.
    #[must_use]
    pub fn queue_name(&self, queue: QueueId) -> Option<&str> {
        self.machine.queue_name(queue)
    }

    /// Leases at most `max` messages to a consumer for `lease_ms` and appends them to `out` in delivery order: highest
    /// priority first; within a priority first what was delayed and is due, then in the order of publishing.
    ///
    /// Returns whether to call it again, when others have had their turn: it goes past many messages that wait for their ordering
    /// key, or for their next attempt, in bounded steps.
    pub fn lease(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        max: usize,
        lease_ms: u64,
        now: Millis,
        out: &mut Vec<Leased>,
    ) -> bool {
        let wanted = Wanted {
            consumer,
            max,
            lease_ms,
        };
        let dispatch = self.dispatch.as_mut();
        dispatch.is_some_and(|dispatch| dispatch.lease(&self.machine, queue, wanted, now, out))
    }

    /// Tells what the record of a leased message says: when it expires, and that it has an id of its own. To be called
    /// after it was read, and only if it says either.
    pub fn note(&mut self, place: Place, expires: Option<Millis>, id: Option<MessageId>) {
        let known = self.machine.stream(place.stream);
        let open = known.is_some_and(|(_, _, window)| window.is_open(place.seq.0));
        if let Some(dispatch) = self.dispatch.as_mut().filter(|_| open) {
            dispatch.notes.add(place, expires, id);
        }
    }

    /// Where the message with this id is: one with an id of its own if it was noted, else the place that the id stands
    /// for. There need not be a message.
    #[must_use]
    pub fn find(&self, id: MessageId) -> Place {
        let noted = self.dispatch.as_ref().and_then(|dispatch| dispatch.notes.find(id));
        noted.unwrap_or_else(|| {
            let (stream, seq) = self.machine.salt().unwrap_or_default().place(id);
            Place { stream, seq }
        })
    }

    /// Takes a message for a command. Nobody else can then settle, lease or time it out until the command is applied,
    /// or [`Plane::unclaim`].
    ///
    /// The token of a lease that ended is accepted as long as nobody else holds the message: it was not done twice.
    ///
    /// # Errors
    /// See [`ClaimError`]. [`ClaimError::Expired`] has claimed the message: expire it, or give it back. With
    /// [`ClaimError::Later`] nothing is known of the message yet: call again.
    pub fn claim(&mut self, handle: Handle, now: Millis) -> Result<Claim, ClaimError> {
        let dispatch = self.dispatch.as_mut().ok_or(ClaimError::NotFound)?;
        dispatch.claim(&self.machine, handle, now)
    }

    /// Gives a claimed message back, because its command was not proposed or will never be applied. It is available
    /// again, and no attempt was counted.
    pub fn unclaim(&mut self, place: Place, now: Millis) {
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.unclaim(&self.machine, place, now);
        }
    }

    /// What applies to the messages of a queue.
    #[must_use]
    pub fn settings(&self, queue: QueueId) -> Settings {
        self.settings.of(self.machine.options(queue))
    }

    /// Moves the end of a lease that is still held to `now` + `lease_ms`.
    ///
    /// # Errors
    /// The message is done, or the lease is over.
    pub fn extend(&mut self, handle: Handle, lease_ms: u64, now: Millis) -> Result<(), ClaimError> {
        let dispatch = self.dispatch.as_mut().ok_or(ClaimError::NotFound)?;
        dispatch.extend(&self.machine, handle, now.plus(lease_ms))
    }

    /// Takes a leased message back to its old position without counting an attempt. Does nothing if it is not leased.
    pub fn release(&mut self, place: Place, now: Millis) {
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.release(&self.machine, place, now);
        }
    }

    /// Takes back all that a consumer holds, as [`Plane::release`] does, and returns the number of messages. What it
    /// has claimed stays claimed.
    pub fn release_consumer(&mut self, consumer: ConsumerId, now: Millis) -> usize {
        let dispatch = self.dispatch.as_mut();
        dispatch.map_or(0, |dispatch| dispatch.release_consumer(&self.machine, consumer, now))
    }

    /// Number of messages that a consumer has leased and that are not being settled.
    #[must_use]
    pub fn held_by(&self, consumer: ConsumerId) -> usize {
        let dispatch = self.dispatch.as_ref();
        dispatch.map_or(0, |dispatch| dispatch.leases.held_by(consumer))
    }

    /// Lets time pass. Messages that are due or out of backoff become ready; those whose lease has ended are claimed
    /// and appended to `timed_out`, to be failed (or expired, or dead-lettered). At most `max` of each: what is left
    /// over shows in [`Plane::next_tick`].
    pub fn tick(&mut self, now: Millis, timed_out: &mut Vec<Claim>, max: usize) {
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.tick(&self.machine, now, timed_out, max);
        }
    }

    /// The first half of [`Plane::tick`]: messages that are due or out of backoff become ready, `max` at most. For a caller
    /// that is not done yet with the leases that have ended.
    pub fn wake_due(&mut self, now: Millis, max: usize) {
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.wake_due(&self.machine, now, max);
        }
    }

    /// When the next [`Plane::tick`] has something to do, as far as is known now.
    #[must_use]
    pub fn next_tick(&self) -> Option<Millis> {
        let dispatch = self.dispatch.as_ref()?;
        let alarm = dispatch.alarms.first().map(|(at, _)| *at);
        let others = [dispatch.next_due(), dispatch.leases.first_end()];
        alarm.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Claims messages whose time to live is over and that nobody holds, and appends them to `expired`, to be expired; at most
    /// `max`: what is left over shows in [`Plane::next_expiry`]. One that somebody holds is noticed when that ends.
    pub fn claim_expired(&mut self, now: Millis, max: usize, expired: &mut Vec<Place>) {
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.claim_expired(&self.machine, now, max, expired);
        }
    }

    /// When the next [`Plane::claim_expired`] has something to do, as far as is known now.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Millis> {
        self.dispatch.as_ref()?.expiries.first().map(|(at, _)| at)
    }

    /// When a message expires; none if it does not, or is done.
    #[must_use]
    pub fn expires(&self, place: Place) -> Option<Millis> {
        let (_, _, window) = self.machine.stream(place.stream)?;
        window.expires.get(place.seq.0)
    }

    /// Appends the queues that got something ready since the last call.
    pub fn take_woken(&mut self, out: &mut Vec<QueueId>) {
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.take_woken(out);
        }
    }

    /// Whether all consumers of a queue have to be woken for one to come: it serves only one of them.
    #[must_use]
    pub fn wakes_all(&self, queue: QueueId) -> bool {
        let dispatch = self.dispatch.as_ref();
        dispatch.is_some_and(|dispatch| dispatch.singles.contains(queue))
    }

    /// Appends the consumers that hold less since the last call, because what they held is no more.
    pub fn take_relieved(&mut self, out: &mut Vec<ConsumerId>) {
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.take_relieved(out);
        }
    }

    /// Claims everything of a queue that is ready or in backoff, and returns what a purge has to name. What is leased
    /// or not due stays.
    pub fn begin_purge(&mut self, queue: QueueId) -> Vec<Run> {
        let dispatch = self.dispatch.as_mut();
        dispatch.map_or_else(Vec::new, |dispatch| dispatch.begin_purge(&self.machine, queue))
    }

    /// Gives back what [`Plane::begin_purge`] returned, because its command will never be applied.
    pub fn abort_purge(&mut self, runs: &[Run], now: Millis) {
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.abort_purge(&self.machine, runs, now);
        }
    }

    /// Appends the first messages of a queue in delivery order, at most `max`, and changes nothing. A node that does not
    /// lead knows no leases: it shows what it would hand out if it began to lead now.
    pub fn peek(&self, queue: QueueId, max: usize, now: Millis, out: &mut Vec<Place>) {
        match &self.dispatch {
            Some(dispatch) => dispatch.peek(&self.machine, queue, max, now, out),
            None => self.machine.peek(queue, max, now, out),
        }
    }

    /// Failed attempts of a message so far; 0 if it is done or there is none.
    #[must_use]
    pub fn attempts(&self, place: Place) -> u32 {
        let stream = self.machine.stream(place.stream);
        stream.map_or(0, |(_, _, window)| window.attempts(place.seq.0))
    }

    /// Figures of a queue. A node that does not lead knows no leases.
    #[must_use]
    pub fn stats(&self, id: QueueId) -> Option<QueueStats> {
        let queue = self.machine.queue_at(id)?;
        Some(match &self.dispatch {
            Some(dispatch) => dispatch.stats(id, queue),
            None => queue.stats(),
        })
    }

    /// Figures of all queues, in the byte order of their names.
    pub fn queues(&self) -> impl Iterator<Item = (&str, QueueId, QueueStats)> {
        self.machine
            .queues()
            .map(|(name, id)| (name, id, self.stats(id).unwrap_or_default()))
    }

    /// As [`Plane::queues`], those behind a name, to look at some of them at a time.
    pub fn queues_after(&self, name: Option<&str>) -> impl Iterator<Item = (&Arc<str>, QueueId, QueueStats)> {
        let queues = self.machine.queues_after(name);
        queues.map(|(name, id)| (name, id, self.stats(id).unwrap_or_default()))
    }

    /// Messages that were ever put into a queue, those included that were moved there.
    #[must_use]
    pub fn published(&self, queue: QueueId) -> u64 {
        let queue = self.machine.queue_at(queue);
        queue.map_or(0, Queue::published)
    }

    /// Figures over all queues since the group was created.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.machine.totals()
    }
}

#[cfg(test)]
impl Plane {
    /// Alarms that are set, whether they still mean something or not.
    pub(crate) fn alarm_count(&self) -> usize {
        let dispatch = self.dispatch.as_ref();
        dispatch.map_or(0, |dispatch| {
            dispatch.alarms.len() + dispatch.dues.check() + dispatch.gathered.len()
        })
    }

    pub(crate) fn check(&self) {
        if let Some(dispatch) = &self.dispatch {
            dispatch.check(&self.machine);
        }
    }
}
