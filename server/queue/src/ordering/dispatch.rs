//! Keeping the messages with an ordering key in step with what happens to them.

use std::collections::BTreeSet;
use std::ops::Range;

use boltq_core::{Millis, StreamId};

use super::keyed::{Next, Stream};
use super::{Keyed, Source};
use crate::dispatch::Dispatch;
use crate::lending::Loan;
use crate::machine::{Machine, Queue};
use crate::place::{KEYED, Place, QueueId, stream_id, stream_of};
use crate::window::Window;

impl Queue {
    /// The messages with an ordering key, if there ever was one.
    pub(crate) fn keyed(&self) -> Option<Stream<'_>> {
        let (window, keys) = (self.window(KEYED)?, &self.keys);
        Some(Stream { window, keys })
    }
}

/// Alarms of a stream, for messages that rest.
struct Rests<'a> {
    alarms: &'a mut BTreeSet<(Millis, Place)>,
    stream: StreamId,
}

impl Rests<'_> {
    fn add(&mut self, seq: u64, until: Millis) {
        self.alarms.insert((until, Place::new(self.stream, seq)));
    }
}

impl Dispatch {
    /// As a leader that has looked at nothing yet.
    pub(crate) fn start_keyed(&mut self, id: QueueId, window: &Window) {
        if let Some(state) = self.queues.get_mut(id.0 as usize) {
            state.keyed = Some(Box::new(Keyed::new(window)));
        }
        if window.open_count() > 0 {
            self.wake(id);
        }
    }

    /// What was placed stands behind the cursor already.
    pub(crate) fn placed_keyed(&mut self, id: QueueId) {
        if let Some(state) = self.queues.get_mut(id.0 as usize) {
            state.keyed.get_or_insert_default();
        }
        self.wake(id);
    }

    fn keyed(&mut self, id: QueueId) -> Option<(&mut Keyed, Rests<'_>)> {
        let stream = stream_id(id, KEYED);
        let keyed = self.queues.get_mut(id.0 as usize)?.keyed.as_deref_mut()?;
        let alarms = &mut self.alarms;
        Some((keyed, Rests { alarms, stream }))
    }

    /// See [`Dispatch::give_back`].
    pub(crate) fn give_back_keyed(&mut self, stream: StreamId, window: &Window, range: &Range<u64>, now: Millis) {
        let Some((id, _)) = stream_of(stream) else { return };
        let Some((keyed, mut rests)) = self.keyed(id) else {
            return;
        };
        if keyed.give_back(window, range, now, |seq, until| rests.add(seq, until)) {
            self.wake(id);
        }
    }

    /// Messages are done, whatever became of them: their keys are free.
    pub(crate) fn finish_keyed(&mut self, machine: &Machine, id: QueueId, range: &Range<u64>) {
        let window = machine.queue_at(id).and_then(|queue| queue.window(KEYED));
        let (Some(window), Some((keyed, mut rests))) = (window, self.keyed(id)) else {
            return;
        };
        if keyed.finish(window, range, machine.now(), |seq, until| rests.add(seq, until)) {
            self.wake(id);
        }
    }

    /// Looks at messages up to that one, which somebody wants to settle: an earlier leader may have handed it out. False: it has
    /// looked at many, and is to be called again when others have had their turn.
    pub(crate) fn reach(&mut self, queue: &Queue, place: Place, now: Millis) -> bool {
        let id = match stream_of(place.stream) {
            Some((id, KEYED)) => id,
            _ => return true,
        };
        match (queue.keyed(), self.keyed(id)) {
            (Some(stream), Some((keyed, mut rests))) => {
                keyed.reach(stream, place.seq.0, now, |seq, until| rests.add(seq, until))
            }
            _ => true,
        }
    }

    /// Whether a message waits for its key, or will, and no command has it. See [`Keyed::is_behind`].
    pub(crate) fn is_behind(&self, place: Place) -> bool {
        let Some((id, KEYED)) = stream_of(place.stream) else {
            return false;
        };
        let keyed = self.queues.get(id.0 as usize).and_then(|state| state.keyed.as_ref());
        keyed.is_some_and(|keyed| keyed.is_behind(place.seq.0))
    }
}

impl Loan<'_> {
    /// Lends messages with a key and without one, in turn.
    pub(crate) fn lend_in_turn(
        &mut self,
        id: QueueId,
        queue: &Queue,
        keyed: &mut Keyed,
        mut lane: impl FnMut(&mut Self, usize),
    ) {
        for (source, most) in keyed.turns(self.left) {
            match (source, queue.keyed()) {
                (Source::Keyed, Some(stream)) => self.lend_keyed(id, stream, keyed, most),
                (Source::Keyed, None) => {}
                (Source::Lane, _) => lane(self, most),
            }
        }
        keyed.change_turns();
    }

    /// Neighbours become one run.
    fn lend_keyed(&mut self, id: QueueId, stream: Stream<'_>, keyed: &mut Keyed, most: usize) {
        let now = self.now;
        let most = most.min(self.left);
        let mut run = 0..0;
        let mut rests = Vec::new();
        for _ in 0..most {
            let next = keyed.take_first(stream, now, &mut self.looks, |seq, until| rests.push((seq, until)));
            self.more = next == Next::Later;
            let Next::Message(seq) = next else { break };
            if seq != run.end && !run.is_empty() {
                self.add(stream_id(id, KEYED), stream.window, &run, None);
                run = 0..0;
            }
            run = if run.is_empty() { seq } else { run.start }..seq + 1;
        }
        if !run.is_empty() {
            self.add(stream_id(id, KEYED), stream.window, &run, None);
        }
        let at = |(seq, until)| (until, Place::new(stream_id(id, KEYED), seq));
        self.alarms.extend(rests.into_iter().map(at));
    }
}
