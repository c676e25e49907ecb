//! Messages with and without keys, as one would look at them without a thought for cost.

use std::collections::{BTreeMap, BTreeSet};

use boltq_core::{Millis, StreamId};

use super::QUEUE;
use crate::ordering::WAITING_MAX;
use crate::place::{KEYED, stream_id};
use crate::{LeaseNo, Place};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Leased {
        consumer: u64,
        lease: LeaseNo,
        ends: Millis,
    },
    Claimed,
    /// Claimed because it is over, wherever it stood.
    Expiring,
    Purging,
    /// When it was its turn.
    Done,
    /// Purged, or done before its turn because it was over.
    Gone,
}

impl State {
    pub(super) fn is_open(self) -> bool {
        !matches!(self, Self::Done | Self::Gone)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: char,
    pub(super) not_before: Millis,
    pub(super) expires: Option<Millis>,
    pub(super) state: State,
}

impl Entry {
    pub(super) fn is_over(&self, now: Millis) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// A command that ends it was applied.
    pub(super) fn finish(&mut self) {
        self.state = match self.state {
            State::Expiring | State::Gone => State::Gone,
            _ => State::Done,
        };
    }
}

/// In the order of publishing, those without a key apart.
#[derive(Debug, Default)]
pub(super) struct Messages(pub(super) BTreeMap<Place, Entry>);

impl Messages {
    pub(super) fn add(&mut self, place: Place, key: char, expires: Option<Millis>) {
        let entry = Entry {
            key,
            not_before: Millis(0),
            expires,
            state: State::Idle,
        };
        assert!(self.0.insert(place, entry).is_none());
    }

    pub(super) fn get(&mut self, place: Place) -> &mut Entry {
        self.0.get_mut(&place).unwrap()
    }

    pub(super) fn places(&self) -> Vec<Place> {
        self.0.keys().copied().collect()
    }

    pub(super) fn open(&self) -> impl Iterator<Item = (Place, &Entry)> {
        let open = self.0.iter().filter(|(_, entry)| entry.state.is_open());
        open.map(|(place, entry)| (*place, entry))
    }

    /// Those that hold their keys, or have none, as far as a leader looks.
    pub(super) fn holders(&self) -> Vec<Place> {
        let mut keys = BTreeSet::new();
        let mut waiting = 0;
        let mut holders = Vec::new();
        for (place, entry) in self.open() {
            if entry.key == '-' || keys.insert(entry.key) {
                holders.push(place);
            } else {
                waiting += 1;
                if waiting > WAITING_MAX {
                    break;
                }
            }
        }
        holders
    }

    pub(super) fn is_purging(&self) -> bool {
        self.open()
            .any(|(place, entry)| place.stream == keyed() && entry.state == State::Purging)
    }

    /// What can be leased of one of both streams.
    pub(super) fn ready(&self, stream: StreamId, now: Millis) -> Vec<Place> {
        let mut holders = self.holders();
        holders.retain(|place| {
            let entry = &self.0[place];
            place.stream == stream && entry.state == State::Idle && entry.not_before <= now
        });
        holders
    }

    /// What a consumer would get.
    pub(super) fn next(&self, max: usize, lane_first: bool, now: Millis) -> Vec<Place> {
        let mut streams = [self.ready(keyed(), now), self.ready(lane(), now)];
        let order = if lane_first { [1, 0, 1] } else { [0, 1, 0] };
        let mut next = Vec::new();
        for (stream, most) in order.into_iter().zip([max.div_ceil(2), max, max]) {
            let count = most.min(max - next.len()).min(streams[stream].len());
            next.extend(streams[stream].drain(..count));
        }
        next
    }

    pub(super) fn give_back(&mut self, which: impl Fn(Place, &Entry) -> bool) {
        for (place, entry) in &mut self.0 {
            if which(*place, entry) {
                entry.state = State::Idle;
            }
        }
    }
}

pub(super) fn keyed() -> StreamId {
    stream_id(QUEUE, KEYED)
}

pub(super) fn lane() -> StreamId {
    stream_id(QUEUE, 0)
}
