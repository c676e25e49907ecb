//! Answers that do not wait for the outcome.
//!
//! Who proposes is told the outcome when a majority has the entry and this node has applied it. A caller may be content with
//! less: that the commands wait to be packed, or that their entry is in the log of this node. What becomes of them after
//! such an answer can no longer be said to the caller, so it is said to an [`Aftermath`].
//!
//! An entry that somebody waits for in this way carries a [`Logged`] on its way from the proposer to the log, in memory
//! only. Entries of other nodes and entries that are read back have none, and neither has one that nobody waits for: the
//! way of all others costs a comparison with nothing.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::ProposeError;

/// What the answer to a caller waits for who does not wait for the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// The commands have room and wait to be packed into an entry.
    Accepted,
    /// The entry is in the log of this node, as durable as the log is set to be; or, if that is known before, applied.
    Logged,
}

/// Told the outcome of what was answered before it was known, and of nothing else. Runs where the outcome becomes known, also
/// under locks of the group, so it must not block or propose.
pub type Aftermath<O> = Box<dyn FnOnce(Result<Vec<O>, ProposeError>) + Send>;

/// A caller that waits for its entry to be in the log. Whoever knows something first answers.
pub(crate) struct Seat(Mutex<Caller>);

enum Caller {
    Waits(oneshot::Sender<Result<(), ProposeError>>),
    /// It was told that the entry is in the log, before the outcome.
    Answered,
    /// It was told the outcome, or had gone away by then.
    Gone,
}

impl Seat {
    /// The entry is in the log.
    fn answer(&self) {
        let mut caller = self.0.lock();
        *caller = match std::mem::replace(&mut *caller, Caller::Gone) {
            Caller::Waits(waits) => waits.send(Ok(())).map_or(Caller::Gone, |()| Caller::Answered),
            other => other,
        };
    }
}

/// Those who wait for one entry to be in the log.
#[derive(Clone, Default)]
pub(crate) struct Logged(Option<Arc<[Arc<Seat>]>>);

impl Logged {
    pub(crate) fn new(seats: Vec<Arc<Seat>>) -> Self {
        Self((!seats.is_empty()).then(|| seats.into()))
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.0.is_some()
    }

    /// The entry is in the log.
    pub(crate) fn tell(&self) {
        for seat in self.0.iter().flat_map(|seats| seats.iter()) {
            seat.answer();
        }
    }
}

impl fmt::Debug for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting", self.0.as_ref().map_or(0, |seats| seats.len()))
    }
}

/// What is told the outcome in place of a caller that does not wait for it.
pub(crate) struct Watcher<O> {
    /// None: it was answered when it was accepted.
    seat: Option<Arc<Seat>>,
    aftermath: Option<Aftermath<O>>,
}

impl<O> Watcher<O> {
    /// Of a caller that was answered.
    pub(crate) fn answered(aftermath: Aftermath<O>) -> Self {
        Self {
            seat: None,
            aftermath: Some(aftermath),
        }
    }

    /// Of a caller that waits for its entry to be in the log.
    pub(crate) fn waiting(aftermath: Aftermath<O>) -> (Self, oneshot::Receiver<Result<(), ProposeError>>) {
        let (caller, answer) = oneshot::channel();
        let watcher = Self {
            seat: Some(Arc::new(Seat(Mutex::new(Caller::Waits(caller))))),
            aftermath: Some(aftermath),
        };
        (watcher, answer)
    }

    pub(crate) fn seat(&self) -> Option<Arc<Seat>> {
        self.seat.clone()
    }

    pub(crate) fn tell(mut self, result: Result<Vec<O>, ProposeError>) {
        self.settle(result);
    }

    fn settle(&mut self, result: Result<Vec<O>, ProposeError>) {
        let Some(aftermath) = self.aftermath.take() else { return };
        let Some(seat) = &self.seat else {
            return aftermath(result);
        };
        let caller = std::mem::replace(&mut *seat.0.lock(), Caller::Gone);
        match caller {
            Caller::Waits(waits) => {
                // A caller that went away does not want its answer.
                let _ = waits.send(result.map(drop));
            }
            Caller::Answered => aftermath(result),
            Caller::Gone => {}
        }
    }
}

/// Nobody knows the outcome, or ever will.
impl<O> Drop for Watcher<O> {
    fn drop(&mut self) {
        self.settle(Err(ProposeError::Stopped));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Notes = Arc<Mutex<Vec<Result<Vec<u64>, String>>>>;

    fn noted() -> (Aftermath<u64>, Notes) {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let kept = notes.clone();
        let aftermath = move |result: Result<Vec<u64>, ProposeError>| {
            kept.lock().push(result.map_err(|error| error.to_string()));
        };
        (Box::new(aftermath), notes)
    }

    #[test]
    fn who_was_answered_early_leaves_the_outcome_to_the_aftermath() {
        let (aftermath, notes) = noted();
        let (watcher, mut answer) = Watcher::waiting(aftermath);
        let logged = Logged::new(watcher.seat().into_iter().collect());
        assert!(logged.is_awaited() && answer.try_recv().is_err());
        logged.tell();
        assert!(answer.try_recv().unwrap().is_ok());
        logged.tell();
        assert!(notes.lock().is_empty());
        watcher.tell(Ok(vec![7]));
        assert_eq!(*notes.lock(), [Ok(vec![7])]);
    }

    #[test]
    fn a_refusal_that_comes_first_is_the_answer_and_has_no_aftermath() {
        let (aftermath, notes) = noted();
        let (watcher, mut answer) = Watcher::waiting(aftermath);
        let logged = Logged::new(watcher.seat().into_iter().collect());
        watcher.tell(Err(ProposeError::NotLeader { leader: None }));
        let refused = answer.try_recv().unwrap();
        assert!(matches!(refused, Err(ProposeError::NotLeader { .. })), "{refused:?}");
        logged.tell();
        assert!(notes.lock().is_empty());
    }

    #[test]
    fn who_went_away_before_the_answer_has_no_aftermath() {
        let (aftermath, notes) = noted();
        let (watcher, answer) = Watcher::waiting(aftermath);
        let logged = Logged::new(watcher.seat().into_iter().collect());
        drop(answer);
        logged.tell();
        watcher.tell(Err(ProposeError::Stopped));
        assert!(notes.lock().is_empty());
    }

    #[test]
    fn an_outcome_that_is_never_known_is_told_once() {
        let (aftermath, notes) = noted();
        drop(Watcher::answered(aftermath));
        assert_eq!(*notes.lock(), [Err(ProposeError::Stopped.to_string())]);
        let (aftermath, notes) = noted();
        let (watcher, mut answer) = Watcher::waiting(aftermath);
        drop(watcher);
        assert!(matches!(answer.try_recv().unwrap(), Err(ProposeError::Stopped)));
        assert!(notes.lock().is_empty());
        assert!(!Logged::default().is_awaited());
    }
}
