//! The messages that a worker holds, from their delivery to the answer to their settlement. No I/O, no clock.
//!
//! Of each there is one job, by the id of the message. The leases of a stream end with it, so a message whose handler runs can be
//! delivered again, to this worker among others: the job takes the new lease over, and no second handler begins. So it is for one whose
//! handler was done and whose acknowledgement came too late, as somebody had the message again: it is remembered for a minute, and
//! acknowledged if it comes again. Only if it does not it was not settled.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::settler::Settlement;
use crate::{Delivery, Error, MessageId, NotSettled, Result};

/// How long a message that was handled and could not be acknowledged is known.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum State {
    /// For a handler.
    Waiting,
    Running {
        since: Instant,
    },
    Settling,
    /// Done, and not acknowledged.
    Remembered {
        until: Instant,
        why: Error,
    },
}

#[derive(Debug)]
struct Job {
    delivery: Delivery,
    state: State,
    lease_end: Instant,
    /// The token whose extension is on its way: while the server is slow, asking again would only make it slower.
    extending: Option<Bytes>,
    /// The lease has ended.
    lost: bool,
    /// The same message, delivered while this one was being settled.
    again: Option<Delivery>,
}

/// What is to be settled next: a lease, and how.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) delivery: Delivery,
    pub(super) how: Settlement,
}

/// What follows from the answer to a settlement.
#[derive(Debug)]
pub(super) enum Afterwards {
    Nothing,
    /// It has another lease now, and is to be settled with that.
    Again(Due),
    /// To be told.
    NotSettled(Delivery, Error),
}

/// What follows as time passes.
#[derive(Debug, Default)]
pub(super) struct Leases {
    pub(super) to_extend: Vec<Delivery>,
    /// Of handlers that have run for too long.
    pub(super) over_ceiling: Vec<Delivery>,
    /// That were remembered, and did not come again.
    pub(super) not_settled: Vec<(Delivery, Error)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    by_id: HashMap<MessageId, Job>,
    /// The oldest first.
    waiting: VecDeque<MessageId>,
    waiting_bytes: usize,
}

impl Jobs {
    /// Takes a delivery. There is something to do at once if the message was handled already.
    pub(super) fn add(&mut self, delivery: Delivery, lease_end: Instant) -> Option<Due> {
        let id = delivery.id();
        let Some(job) = self.by_id.get_mut(&id) else {
            self.push(delivery, lease_end);
            return None;
        };
        job.lease_end = lease_end;
        job.lost = false;
        match job.state {
            State::Waiting | State::Running { .. } => job.delivery = delivery,
            // Only the answer tells whether this came because of the settlement or in spite of it.
            State::Settling => job.again = Some(delivery),
            State::Remembered { .. } => {
                job.delivery = delivery;
                return Some(job.settle(Settlement::Ack));
            }
        }
        None
    }

    fn push(&mut self, delivery: Delivery, lease_end: Instant) {
        self.waiting.push_back(delivery.id());
        self.waiting_bytes += delivery.size();
        let job = Job {
            state: State::Waiting,
            lease_end,
            extending: None,
            lost: false,
            again: None,
            delivery,
        };
        self.by_id.insert(job.delivery.id(), job);
    }

    /// Bytes of the messages that wait for a handler.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The next one whose handler begins.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Delivery> {
        let id = self.waiting.pop_front()?;
        let job = self.by_id.get_mut(&id)?;
        self.waiting_bytes -= job.delivery.size();
        job.state = State::Running { since: now };
        Some(job.delivery.clone())
    }

    /// A handler has ended, or is not waited for any longer; `how` is what becomes of its message. `None`: that is decided already.
    pub(super) fn finished(&mut self, id: &MessageId, how: Settlement) -> Option<Due> {
        let job = self.by_id.get_mut(id)?;
        matches!(job.state, State::Running { .. }).then(|| job.settle(how))
    }

    /// The answer to the settlement of a lease.
    pub(super) fn settled(&mut self, due: Due, answer: Result<()>, now: Instant) -> Afterwards {
        let id = due.delivery.id();
        let Some(job) = self.by_id.get_mut(&id) else {
            return Afterwards::Nothing;
        };
        let again = job.again.take();
        let too_late = answer.as_ref().is_err_and(is_gone);
        if too_late && let Some(again) = again {
            job.delivery = again;
            return Afterwards::Again(job.settle(due.how));
        }
        match answer {
            Err(why) if due.how == Settlement::Ack && is_elsewhere(&why) => {
                let until = now + REMEMBERED_FOR;
                job.state = State::Remembered { until, why };
                return Afterwards::Nothing;
            }
            _ => {}
        }
        let (lost, lease_end) = (job.lost, job.lease_end);
        self.by_id.remove(&id);
        let acknowledged = answer.is_ok() && due.how == Settlement::Ack;
        if let Some(again) = again.filter(|_| !lost && !acknowledged) {
            // It was given back, and is here already.
            self.push(again, lease_end);
        }
        match answer {
            Ok(()) => Afterwards::Nothing,
            Err(error) => Afterwards::NotSettled(due.delivery, error),
        }
    }

    /// Takes out those that wait for a handler.
    pub(super) fn take_waiting(&mut self) -> Vec<Delivery> {
        self.waiting_bytes = 0;
        let ids = std::mem::take(&mut self.waiting).into_iter();
        ids.filter_map(|id| Some(self.by_id.remove(&id)?.delivery)).collect()
    }

    /// All leases have ended. What has no handler comes again, to whoever asks first.
    pub(super) fn stream_ended(&mut self) {
        self.take_waiting();
        for job in self.by_id.values_mut() {
            job.lost = true;
        }
    }

    /// Leases that end before `before`, but for those of handlers that have run for `ceiling`.
    pub(super) fn leases(&mut self, now: Instant, before: Instant, ceiling: Duration) -> Leases {
        let mut leases = Leases::default();
        self.by_id.retain(|_, job| match &mut job.state {
            State::Remembered { until, why } => {
                let over = *until <= now;
                if over {
                    leases.not_settled.push((job.delivery.clone(), why.clone()));
                }
                !over
            }
            State::Settling => true,
            State::Running { since } if now.saturating_duration_since(*since) >= ceiling => {
                leases.over_ceiling.push(job.delivery.clone());
                true
            }
            State::Waiting | State::Running { .. } => {
                let asked = job.extending.as_ref() == Some(job.delivery.token());
                if !job.lost && !asked && job.lease_end < before {
                    job.extending = Some(job.delivery.token().clone());
                    leases.to_extend.push(job.delivery.clone());
                }
                true
            }
        });
        leases
    }

    /// The answer to an extension. What is to be told: the lease was lost before.
    pub(super) fn extended(&mut self, lease: &Delivery, lease_end: Instant, answer: Result<()>) -> Option<Error> {
        let job = self.by_id.get_mut(&lease.id())?;
        job.extending.take_if(|asked| asked == lease.token());
        let held = matches!(job.state, State::Waiting | State::Running { .. });
        if !held || job.delivery.token() != lease.token() {
            return None;
        }
        match answer {
            Ok(()) => job.lease_end = lease_end,
            Err(error) if is_gone(&error) && !job.lost => {
                job.lost = true;
                return Some(error);
            }
            // It can be better the next time: half of the lease is left.
            Err(_) => {}
        }
        None
    }

    /// Messages whose handler has begun, and whose settlement has no answer.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = MessageId> {
        let begun = |job: &&Job| matches!(job.state, State::Running { .. } | State::Settling);
        self.by_id.values().filter(begun).map(|job| job.delivery.id())
    }

    /// Those that were remembered, and will not come again to this worker.
    pub(super) fn take_remembered(&mut self) -> Vec<(Delivery, Error)> {
        let over = |(_, job): (MessageId, Job)| match job.state {
            State::Remembered { why, .. } => Some((job.delivery, why)),
            _ => None,
        };
        let remembered = |_: &MessageId, job: &mut Job| matches!(job.state, State::Remembered { .. });
        self.by_id.extract_if(remembered).filter_map(over).collect()
    }

    /// Whether a delivery is of a message that has begun here.
    pub(super) fn knows(&self, delivery: &Delivery) -> bool {
        self.by_id.contains_key(&delivery.id())
    }
}

impl Job {
    fn settle(&mut self, how: Settlement) -> Due {
        self.state = State::Settling;
        Due {
            delivery: self.delivery.clone(),
            how,
        }
    }
}

/// Whether somebody has the message, who can be this worker again.
fn is_elsewhere(error: &Error) -> bool {
    matches!(error, Error::NotSettled(NotSettled::LeaseLost))
}

/// Whether a message is not there to be settled any more, or not for this holder.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::NotSettled(NotSettled::NotFound | NotSettled::LeaseLost))
}

#[cfg(test)]
mod tests;
