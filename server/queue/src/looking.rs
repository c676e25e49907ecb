//! What a node that does not lead can say of the messages that come next.
//!
//! It knows which messages are not done, when they are due and which of them failed, and not who holds one: what is leased
//! is shown as if it were ready. It is what this node would hand out if it began to lead now.

use std::collections::BTreeSet;

use boltq_core::Millis;
use boltq_core::limits::PRIORITY_MAX;

use crate::lending::KEYED_LANE;
use crate::machine::{Machine, Queue};
use crate::ordering::Keyed;
use crate::place::{DELAYED, KEYED, Place, QueueId, stream_id};
use crate::timetable::Slot;
use crate::window::Window;

/// Lowest first: highest priority, then by due time, then in the order of publishing.
type DueKey = (u8, Millis, u64);

impl Machine {
    /// The first messages in delivery order, at most `max`. Looks at every delayed message, and at those that wait for their
    /// next attempt in front of what it finds.
    pub(crate) fn peek(&self, id: QueueId, max: usize, now: Millis, out: &mut Vec<Place>) {
        let Some(queue) = self.queue_at(id) else { return };
        let wanted = out.len().saturating_add(max);
        let mut due = first_due(queue, max, now).into_iter().peekable();
        for priority in (0..=PRIORITY_MAX).rev() {
            while out.len() < wanted
                && let Some((_, _, seq)) = due.next_if(|(rank, ..)| *rank == PRIORITY_MAX.saturating_sub(priority))
            {
                out.push(Place::new(stream_id(id, DELAYED), seq));
            }
            let lane = usize::from(priority);
            let windows = queue.window(lane).into_iter();
            let ready = windows.flat_map(|window| {
                let open = window.open_parts(window.base..window.head).flatten();
                open.filter(|seq| is_ready(window, *seq, now))
            });
            let places = ready.map(|seq| Place::new(stream_id(id, lane), seq));
            let left = wanted - out.len();
            match queue.keyed().filter(|_| lane == KEYED_LANE) {
                Some(stream) => {
                    let keyed = Keyed::new(stream.window);
                    let upcoming = keyed.upcoming(stream, now);
                    let upcoming = upcoming.map(|seq| Place::new(stream_id(id, KEYED), seq));
                    keyed.show(left, upcoming, places, out);
                }
                None => out.extend(places.take(left)),
            }
        }
    }
}

/// The first delayed messages that are due, at most `max`.
fn first_due(queue: &Queue, max: usize, now: Millis) -> BTreeSet<DueKey> {
    let mut first = BTreeSet::new();
    let Some(window) = queue.window(DELAYED) else {
        return first;
    };
    for (seq, due) in queue.due.iter().filter(|(_, due)| due.at() <= now) {
        if is_ready(window, seq, now) {
            first.insert((PRIORITY_MAX.saturating_sub(due.priority()), due.at(), seq));
            if first.len() > max {
                first.pop_last();
            }
        }
    }
    first
}

/// Whether a message that is not done waits for nothing.
fn is_ready(window: &Window, seq: u64, now: Millis) -> bool {
    let failure = window.failed.get(&seq);
    failure.is_none_or(|failure| failure.not_before <= now)
}
