//! What random commands and calls are made on, whatever a test is about: a leader, another replica that is snapshotted and
//! restored before every command, the store of both, and what clients hold of the leader.

use std::collections::VecDeque;

use boltq_core::{Applied, Millis, StateMachine, Term};
use bytes::{BufMut, BytesMut};
use proptest::sample::Index;

use super::fixture::SETTINGS;
use super::model::Store;
use crate::{Captured, Claim, ConsumerId, Handle, Leased, Machine, Outcome, Place, Plane, QueueId, Run};

/// Captures that are there at a time.
const CAPTURES_MAX: usize = 4;
/// Bytes of the entry in front of the command.
const OFFSET: u32 = 11;

pub(super) struct Nodes {
    pub(super) plane: Plane,
    replica: Machine,
    store: Store,
    term: Term,
    pub(super) now: Millis,
    /// All that there ever were.
    pub(super) deliveries: Vec<Leased>,
    /// For which no command was applied yet.
    pub(super) claims: Vec<Place>,
    pub(super) purges: Vec<Vec<Run>>,
    /// The last captures of the leader's machine, and what was to be written of each.
    captured: VecDeque<(Captured, Vec<u8>)>,
}

/// One of some things, if there is any.
pub(super) fn pick<T: Copy>(items: &[T], index: Index) -> Option<T> {
    (!items.is_empty()).then(|| *index.get(items))
}

impl Nodes {
    pub(super) fn new() -> Self {
        let mut nodes = Self {
            plane: Plane::new(Machine::default(), SETTINGS),
            replica: Machine::default(),
            store: Store::default(),
            term: Term(1),
            now: Millis(1_000),
            deliveries: Vec::new(),
            claims: Vec::new(),
            purges: Vec::new(),
            captured: VecDeque::new(),
        };
        nodes.lead();
        nodes
    }

    /// Applies a command on both replicas and returns what it answered and freed.
    pub(super) fn apply(&mut self, command: &[u8]) -> (Outcome, Vec<Place>) {
        self.capture();
        let (mut applied, mut again) = (Applied::default(), Applied::default());
        let outcome = self.plane.apply(self.now, command, OFFSET, &mut applied).unwrap();
        self.replica = Machine::restore(&self.replica.snapshot()).unwrap();
        let outcome_again = self.replica.apply(self.now, command, OFFSET, &mut again).unwrap();
        assert_eq!(outcome, outcome_again);
        assert_eq!((&applied.storage, &applied.effects), (&again.storage, &again.effects));
        assert_eq!(self.plane.machine().snapshot(), self.replica.snapshot());
        let mut entry = BytesMut::new();
        entry.put_bytes(0xEE, OFFSET as usize);
        entry.put_slice(command);
        (outcome, self.store.follow(&entry, &applied.storage))
    }

    /// Takes a capture, and checks that one which was taken some commands ago is of that moment still.
    fn capture(&mut self) {
        let machine = self.plane.machine();
        self.captured.push_back((machine.capture(), machine.snapshot()));
        if self.captured.len() > CAPTURES_MAX {
            let (captured, snapshot) = self.captured.pop_front().unwrap();
            let mut written = BytesMut::new();
            captured.write(&mut written);
            assert_eq!(written, snapshot);
        }
    }

    /// The leader begins again: what it had promised is void.
    pub(super) fn lead(&mut self) {
        self.plane.lead(self.term, self.now);
        self.claims.clear();
        self.purges.clear();
    }

    /// Another node leads. Its clock may be behind, its term is not.
    pub(super) fn fail_over(&mut self) {
        self.term.0 += 1;
        let machine = Machine::restore(&self.plane.machine().snapshot()).unwrap();
        self.plane = Plane::new(machine, SETTINGS);
        self.lead();
    }

    /// A delivery, by its token or by its place.
    pub(super) fn delivery(&self, index: Index, by_place: bool) -> Option<Handle> {
        let Leased { place, lease, .. } = pick(&self.deliveries, index)?;
        Some(match by_place {
            true => Handle::Place(place),
            false => Handle::Token { place, lease },
        })
    }

    /// Leases, and remembers what was leased.
    pub(super) fn lease(&mut self, queue: QueueId, consumer: ConsumerId, max: usize, ms: u64) -> Vec<Leased> {
        let mut leased = Vec::new();
        self.plane.lease(queue, consumer, max, ms, self.now, &mut leased);
        let numbers = self.deliveries.iter().chain(&leased).map(|leased| leased.lease);
        assert!(numbers.clone().zip(numbers.skip(1)).all(|(one, next)| one < next));
        self.deliveries.extend(&leased);
        leased
    }

    /// The oldest claims, for which a command is to be applied.
    pub(super) fn take_claims(&mut self, count: usize) -> Vec<Place> {
        self.claims.drain(..count.min(self.claims.len())).collect()
    }

    /// Gives a claim back, and returns which.
    pub(super) fn unclaim(&mut self, index: Index) -> Option<Place> {
        let place = pick(&self.claims, index)?;
        self.claims.retain(|claim| *claim != place);
        self.plane.unclaim(place, self.now);
        Some(place)
    }

    /// Lets time pass; returns the leases that ended, which are claimed, in the order of their messages.
    pub(super) fn pass(&mut self, ms: u64) -> Vec<Claim> {
        self.now = self.now.plus(ms);
        let mut timed_out = Vec::new();
        self.plane.tick(self.now, &mut timed_out, usize::MAX);
        timed_out.sort_by_key(|claim| claim.place);
        self.claims.extend(timed_out.iter().map(|claim| claim.place));
        assert!(self.plane.next_tick().is_none_or(|next| next > self.now));
        timed_out
    }

    /// Claims messages that are over, of which there have to be `there`; returns which were claimed.
    pub(super) fn claim_expired(&mut self, max: usize, there: usize) -> Vec<Place> {
        let mut claimed = Vec::new();
        self.plane.claim_expired(self.now, max, &mut claimed);
        assert_eq!(claimed.len(), there.min(max));
        if max > there {
            assert!(self.plane.next_expiry().is_none_or(|next| next > self.now));
        }
        self.claims.extend(&claimed);
        claimed
    }

    /// What the leader would hand out.
    pub(super) fn peek(&self, queue: QueueId, max: usize) -> Vec<Place> {
        peek(&self.plane, queue, max, self.now)
    }

    /// What a replica would hand out if it began to lead now, which it shows before.
    pub(super) fn peek_replica(&self, queue: QueueId, max: usize) -> Vec<Place> {
        let machine = Machine::restore(&self.replica.snapshot()).unwrap();
        peek(&Plane::new(machine, SETTINGS), queue, max, self.now)
    }

    /// The leader is consistent, records are there once for each open message, and a replica shows what it would hand out.
    pub(super) fn check(&self) {
        self.plane.check();
        assert_eq!(self.store.live_count(), self.plane.machine().open_count());
        let machine = Machine::restore(&self.replica.snapshot()).unwrap();
        let mut replica = Plane::new(machine, SETTINGS);
        let ids: Vec<QueueId> = replica.queues().map(|(_, id, _)| id).collect();
        let look = |replica: &Plane| -> Vec<Vec<Place>> {
            let looks = ids.iter().flat_map(|id| [1, 3, 1_000].map(|max| (*id, max)));
            looks.map(|(id, max)| peek(replica, id, max, self.now)).collect()
        };
        let shown = look(&replica);
        replica.lead(self.term, self.now);
        assert_eq!(shown, look(&replica));
    }
}

fn peek(plane: &Plane, queue: QueueId, max: usize, now: Millis) -> Vec<Place> {
    let mut shown = Vec::new();
    plane.peek(queue, max, now, &mut shown);
    shown
}
