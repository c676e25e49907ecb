//! Where messages are, and the numbers that name queues, consumers and leases.

use std::fmt;

use boltq_core::limits::PRIORITY_MAX;
use boltq_core::{Seq, StreamId};

/// Number of a queue, given in the order of creation and never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

/// Whoever leases messages: a connection or a stream. Given by the caller, unique on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub u64);

impl ConsumerId {
    /// All who lease in one call and settle in another together: they have no connection that could end.
    pub const DETACHED: Self = Self(0);
    /// Who looks for expired messages when no consumer does.
    pub const SWEEPER: Self = Self(1);
    /// The first one that is neither.
    pub const FIRST: Self = Self(2);
}

/// Number of a lease. Rises with every lease that a leader gives, and from one leadership to the next, so that a token
/// of an earlier lease is never mistaken for the present one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseNo(pub u64);

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message: the record at `seq` of `stream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The stream.
    pub stream: StreamId,
    /// Position in the stream.
    pub seq: Seq,
}

impl Place {
    pub(crate) fn new(stream: StreamId, seq: u64) -> Self {
        Self { stream, seq: Seq(seq) }
    }
}

/// `count` messages of a stream from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// The stream.
    pub stream: StreamId,
    /// The first of them.
    pub first: Seq,
    /// How many there are.
    pub count: u64,
}

impl Run {
    pub(crate) fn new(stream: StreamId, range: &std::ops::Range<u64>) -> Self {
        Self {
            stream,
            first: Seq(range.start),
            count: range.end - range.start,
        }
    }

    /// The sequences. A count that leads beyond the last sequence there can be is cut off.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.first.0..self.first.0.saturating_add(self.count)
    }

    /// Whether `place` is one of them.
    #[must_use]
    pub fn contains(&self, place: Place) -> bool {
        place.stream == self.stream && self.range().contains(&place.seq.0)
    }

    /// The messages one by one.
    pub fn places(self) -> impl Iterator<Item = Place> {
        self.range().map(move |seq| Place::new(self.stream, seq))
    }
}

impl From<Place> for Run {
    fn from(place: Place) -> Self {
        Self {
            stream: place.stream,
            first: place.seq,
            count: 1,
        }
    }
}

/// Runs in the order of the records that they stand for. One run, which is what a publish without mixed priorities
/// gives, needs no allocation.
#[derive(Clone, Debug)]
pub struct Runs(Repr);

#[derive(Clone, Debug)]
enum Repr {
    One(Run),
    Many(Vec<Run>),
}

impl Runs {
    pub(crate) fn new() -> Self {
        Self(Repr::Many(Vec::new()))
    }

    pub(crate) fn push(&mut self, run: Run) {
        match &mut self.0 {
            Repr::Many(runs) if runs.is_empty() => self.0 = Repr::One(run),
            Repr::Many(runs) => runs.push(run),
            Repr::One(first) => self.0 = Repr::Many(vec![*first, run]),
        }
    }

    /// Takes the first `count` messages out, or all if there are fewer.
    #[must_use]
    pub fn take_front(&mut self, count: u64) -> Self {
        let mut taken = Self::new();
        let mut rest = Self::new();
        let mut wanted = count;
        for run in self.iter() {
            let front = run.count.min(wanted);
            wanted -= front;
            if front > 0 {
                taken.push(Run { count: front, ..*run });
            }
            if front < run.count {
                let first = Seq(run.first.0 + front);
                rest.push(Run {
                    first,
                    count: run.count - front,
                    ..*run
                });
            }
        }
        *self = rest;
        taken
    }

    /// The messages one by one.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.iter().copied().flat_map(Run::places)
    }
}

impl std::ops::Deref for Runs {
    type Target = [Run];

    fn deref(&self) -> &[Run] {
        match &self.0 {
            Repr::One(run) => std::slice::from_ref(run),
            Repr::Many(runs) => runs,
        }
    }
}

impl PartialEq for Runs {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Runs {}

/// Number of priority lanes of a queue.
pub(crate) const LANES: usize = PRIORITY_MAX as usize + 1;
/// The stream of delayed messages comes after the lanes.
pub(crate) const DELAYED: usize = LANES;
/// Streams of a queue.
pub(crate) const STREAMS: usize = LANES + 1;
/// Streams that a queue could have: its part of the space of stream ids. The part before queue 0 stays free.
const STREAMS_PER_QUEUE: u64 = 16;

/// The stream of a lane, or of the delayed messages, of a queue.
pub(crate) fn stream_id(queue: QueueId, lane: usize) -> StreamId {
    StreamId((u64::from(queue.0) + 1) * STREAMS_PER_QUEUE + lane as u64)
}

/// What [`stream_id`] was made of; `None` for ids that it does not give.
pub(crate) fn stream_of(stream: StreamId) -> Option<(QueueId, usize)> {
    let queue = (stream.0 / STREAMS_PER_QUEUE).checked_sub(1)?;
    let lane = usize::try_from(stream.0 % STREAMS_PER_QUEUE).ok()?;
    (lane < STREAMS).then_some((QueueId(u32::try_from(queue).ok()?), lane))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_id_leads_back_to_queue_and_lane() {
        for queue in [0, 1, 77, u32::MAX] {
            for lane in 0..STREAMS {
                let stream = stream_id(QueueId(queue), lane);
                assert_eq!(stream_of(stream), Some((QueueId(queue), lane)));
            }
        }
    }

    #[test]
    fn ids_that_no_stream_has_lead_nowhere() {
        for id in [0, 15, 16 + 11, 31, u64::MAX, (1 << 36) + 16] {
            assert_eq!(stream_of(StreamId(id)), None, "{id}");
        }
    }

    #[test]
    fn runs_keep_their_order_whether_one_or_many() {
        let run = |first| Run {
            stream: StreamId(16),
            first: Seq(first),
            count: 2,
        };
        let mut runs = Runs::new();
        assert!(runs.is_empty());
        for first in [1, 3, 5] {
            runs.push(run(first));
        }
        assert_eq!(&runs[..], [run(1), run(3), run(5)]);
        let seqs: Vec<_> = runs.places().map(|place| place.seq.0).collect();
        assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn the_front_of_runs_is_taken_out_and_the_rest_stays() {
        let run = |stream, first, count| Run {
            stream: StreamId(stream),
            first: Seq(first),
            count,
        };
        let mut runs = Runs::new();
        for part in [run(1, 5, 3), run(2, 1, 2), run(1, 8, 1)] {
            runs.push(part);
        }
        assert_eq!(&*runs.take_front(1), [run(1, 5, 1)]);
        assert_eq!(&*runs.take_front(3), [run(1, 6, 2), run(2, 1, 1)]);
        assert_eq!(&*runs.take_front(0), []);
        assert_eq!(&*runs, [run(2, 2, 1), run(1, 8, 1)]);
        assert_eq!(&*runs.take_front(9), [run(2, 2, 1), run(1, 8, 1)]);
        assert!(runs.is_empty());
    }
}
