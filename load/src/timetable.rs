//! When batches are due in an open loop.
//!
//! Batch `n` of a publisher is due `n` intervals after the start, whatever became of the ones before: a timetable does not wait.
//! Publishers take turns within an interval.
//!
//! Timers of the runtime have steps of a millisecond, which would be most of what a fast broker makes wait. So a thread of its
//! own sleeps until the next batch is due, and wakes its publisher.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::figures::Shared;

/// A thread that sleeps notices the end so soon.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// The timetable of one publisher.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timetable {
    first: Instant,
    interval_s: f64,
    /// Batches that left.
    sent: u64,
}

impl Timetable {
    /// Of each of `publishers`, which send `batches_per_second` together.
    pub(crate) fn all(start: Instant, publishers: usize, batches_per_second: f64) -> Vec<Self> {
        let step_s = 1.0 / batches_per_second;
        (0..publishers)
            .map(|turn| Self {
                first: start + Duration::from_secs_f64(step_s * turn as f64),
                interval_s: step_s * publishers as f64,
                sent: 0,
            })
            .collect()
    }

    /// When the next batch is due.
    pub(crate) fn next(&self) -> Instant {
        self.first + Duration::from_secs_f64(self.interval_s * self.sent as f64)
    }

    /// The time at which the next batch was due, if that is over. It counts as sent then.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next();
        (due <= now).then(|| {
            self.sent += 1;
            due
        })
    }
}

/// Wakes the publishers of `shared` when they have something to send, until the load stops.
pub(crate) fn ring(mut timetables: Vec<Timetable>, shared: Arc<Shared>) -> std::io::Result<()> {
    thread::Builder::new().name("timetable".to_owned()).spawn(move || {
        while !shared.is_stopping() {
            let now = Instant::now();
            for (publisher, timetable) in timetables.iter_mut().enumerate() {
                let mut due = false;
                while timetable.take_due(now).is_some() {
                    due = true;
                }
                if due {
                    shared.wake_publisher(publisher);
                }
            }
            let next = timetables.iter().map(Timetable::next).min().unwrap_or(now + SLEEP_MAX);
            thread::sleep(next.saturating_duration_since(Instant::now()).min(SLEEP_MAX));
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_due_at_their_times_however_late_they_leave() {
        let start = Instant::now();
        let [mut first, mut second] = <[_; 2]>::try_from(Timetable::all(start, 2, 100.0)).unwrap();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(second.take_due(at(9)), None);
        assert_eq!(second.take_due(at(10)), Some(at(10)));
        // A publisher that was held up for 50 ms still owes what was due then.
        let owed: Vec<_> = std::iter::from_fn(|| first.take_due(at(50))).collect();
        assert_eq!(owed, [at(0), at(20), at(40)]);
        assert_eq!(first.next(), at(60));
    }
}
