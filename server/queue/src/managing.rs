//! Creating queues with settings of their own, changing these, and deleting queues.
//!
//! ```text
//! 18 SetQueue     u8 0: create, 1: change; str queue, u16 which settings, as bits; settings (see `options.rs`)
//! 19 DeleteQueue  u8 1: only if it is empty; str queue
//! 20 DeleteSubscription u64 not if it was attached later (Unix milliseconds), str topic, str subscription: as 11, and its
//!    backlog is deleted too
//! ```
//!
//! A change names the settings that it is about, and the others stay: so two changes at the same time both count. Of a
//! deleted queue nothing is left but its number, which no other gets: ids of messages and tokens of deliveries are made of
//! it.

use boltq_core::codec::{self, Reader};
use boltq_core::{Applied, DecodeError, Millis};
use bytes::{BufMut, BytesMut};

pub(crate) mod snapshot;

use crate::machine::Machine;
use crate::options::{QueueOptionSet, QueueOptions};
use crate::outcome::{Effect, Outcome};
use crate::place::QueueId;

const SET_QUEUE: u8 = 18;
const DELETE_QUEUE: u8 = 19;
const DELETE_SUBSCRIPTION: u8 = 20;
const CREATE: u8 = 0;
const CHANGE: u8 = 1;

/// Appends the command that creates a queue with settings. One that is there has to have the same.
pub fn create_queue(out: &mut BytesMut, queue: &str, options: &QueueOptions) {
    put_set(out, CREATE, queue, QueueOptionSet::ALL, options);
}

/// Appends the command that changes some settings of a queue to what they are in `options`.
pub fn change_queue(out: &mut BytesMut, queue: &str, which: QueueOptionSet, options: &QueueOptions) {
    put_set(out, CHANGE, queue, which, options);
}

fn put_set(out: &mut BytesMut, how: u8, queue: &str, which: QueueOptionSet, options: &QueueOptions) {
    out.put_u8(SET_QUEUE);
    out.put_u8(how);
    codec::put_bytes(out, queue.as_bytes());
    which.put(out);
    options.put(out);
}

/// Appends the command that deletes a queue with all of its messages, its bindings and its settings.
pub fn delete_queue(out: &mut BytesMut, queue: &str, only_if_empty: bool) {
    out.put_u8(DELETE_QUEUE);
    out.put_u8(u8::from(only_if_empty));
    codec::put_bytes(out, queue.as_bytes());
}

/// Appends the command that deletes a durable subscription and its backlog with all that it has, unless somebody was attached
/// after `attached_until`.
pub fn delete_subscription(out: &mut BytesMut, topic: &str, subscription: &str, attached_until: Millis) {
    out.put_u8(DELETE_SUBSCRIPTION);
    out.put_u64_le(attached_until.0);
    codec::put_bytes(out, topic.as_bytes());
    codec::put_bytes(out, subscription.as_bytes());
}

/// Why a queue was not created, changed or deleted. Nothing changed then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueRefusal {
    /// There is no queue of this name.
    NotFound,
    /// It is there, with other settings.
    Exists,
    /// So many of its messages are not done.
    NotEmpty(u64),
    /// It is the backlog of a durable subscription.
    Backlog {
        /// The topic.
        topic: Box<str>,
        /// The id of the subscription.
        subscription: Box<str>,
    },
    /// Its dead letters would come back to it.
    DeadLettersReturn,
}

/// A command as it is read.
#[derive(Debug, Clone)]
pub(crate) enum ManagingCommand<'a> {
    Create {
        queue: &'a str,
        options: QueueOptions,
    },
    Change {
        queue: &'a str,
        which: QueueOptionSet,
        options: QueueOptions,
    },
    Delete {
        queue: &'a str,
        only_if_empty: bool,
    },
    DeleteSubscription {
        topic: &'a str,
        subscription: &'a str,
        attached_until: Millis,
    },
}

impl<'a> ManagingCommand<'a> {
    /// `None` if it is another command.
    pub(crate) fn read(tag: u8, reader: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        Ok(Some(match tag {
            SET_QUEUE => {
                let how = reader.u8("how to set a queue")?;
                let queue = reader.str("queue name")?;
                let which = QueueOptionSet::read(reader)?;
                let options = QueueOptions::read(reader)?;
                match how {
                    CREATE => Self::Create { queue, options },
                    CHANGE => Self::Change { queue, which, options },
                    other => {
                        return Err(DecodeError::Unknown {
                            what: "how to set a queue",
                            value: u64::from(other),
                        });
                    }
                }
            }
            DELETE_QUEUE => Self::Delete {
                only_if_empty: match reader.u8("only if empty")? {
                    0 => false,
                    1 => true,
                    other => {
                        return Err(DecodeError::Unknown {
                            what: "only if empty",
                            value: u64::from(other),
                        });
                    }
                },
                queue: reader.str("queue name")?,
            },
            DELETE_SUBSCRIPTION => Self::DeleteSubscription {
                attached_until: Millis(reader.u64("last attached")?),
                topic: reader.str("topic")?,
                subscription: reader.str("subscription")?,
            },
            _ => return Ok(None),
        }))
    }
}

impl Machine {
    /// The settings that a queue has of its own.
    #[must_use]
    pub fn options(&self, queue: QueueId) -> Option<&QueueOptions> {
        self.queue_at(queue)?.options.as_deref()
    }

    /// Queues with settings of their own, in the order of their numbers.
    pub fn queues_with_options(&self) -> impl Iterator<Item = (&str, &QueueOptions)> {
        let queues = self.queues.iter();
        queues.filter_map(|queue| Some((&*queue.name, queue.options.as_deref()?)))
    }

    /// Queues that were deleted since the group was created.
    #[must_use]
    pub fn deleted_count(&self) -> usize {
        self.queues.gone_count()
    }

    pub(crate) fn manage(&mut self, command: ManagingCommand<'_>, applied: &mut Applied<Effect>) -> Outcome {
        let done = match command {
            ManagingCommand::Create { queue, options } => self.create(queue, options, applied),
            ManagingCommand::Change { queue, which, options } => self.change(queue, which, options, applied),
            ManagingCommand::Delete { queue, only_if_empty } => self.delete(queue, only_if_empty, applied),
            ManagingCommand::DeleteSubscription {
                topic,
                subscription,
                attached_until,
            } => Ok(self.delete_subscription(topic, subscription, attached_until, applied)),
        };
        done.unwrap_or_else(Outcome::QueueRefused)
    }

    fn create(
        &mut self,
        name: &str,
        options: QueueOptions,
        applied: &mut Applied<Effect>,
    ) -> Result<Outcome, QueueRefusal> {
        if let Some(id) = self.queue(name) {
            let there = self.options(id).cloned().unwrap_or_default();
            return if there == options {
                Ok(Outcome::QueueSet { queue: id, new: false })
            } else {
                Err(QueueRefusal::Exists)
            };
        }
        self.check_dead_letters(name, &options)?;
        let queue = self.declare(name);
        self.set(queue, options, applied);
        Ok(Outcome::QueueSet { queue, new: true })
    }

    fn change(
        &mut self,
        name: &str,
        which: QueueOptionSet,
        options: QueueOptions,
        applied: &mut Applied<Effect>,
    ) -> Result<Outcome, QueueRefusal> {
        let queue = self.queue(name).ok_or(QueueRefusal::NotFound)?;
        let there = self.options(queue).cloned().unwrap_or_default();
        let options = there.with(which, options);
        self.check_dead_letters(name, &options)?;
        self.set(queue, options, applied);
        Ok(Outcome::QueueSet { queue, new: false })
    }

    fn check_dead_letters(&self, name: &str, options: &QueueOptions) -> Result<(), QueueRefusal> {
        match options.dead_letter_queue.as_deref() {
            Some(named) if self.dead_letters_return(name, named) => Err(QueueRefusal::DeadLettersReturn),
            _ => Ok(()),
        }
    }

    fn set(&mut self, id: QueueId, options: QueueOptions, applied: &mut Applied<Effect>) {
        let Some(queue) = self.queues.get_mut(id.0 as usize) else {
            return;
        };
        if queue.options.as_deref().cloned().unwrap_or_default() != options {
            queue.set_options(options);
            applied.effects.push(Effect::QueueChanged { queue: id });
        }
    }

    fn delete(
        &mut self,
        name: &str,
        only_if_empty: bool,
        applied: &mut Applied<Effect>,
    ) -> Result<Outcome, QueueRefusal> {
        let id = self.queue(name).ok_or(QueueRefusal::NotFound)?;
        if let Some((topic, subscription)) = self.routing.topics.backlog(id) {
            return Err(QueueRefusal::Backlog {
                topic: topic.into(),
                subscription: subscription.into(),
            });
        }
        let open = self.queue_at(id).map_or(0, |queue| queue.open_count());
        if only_if_empty && open > 0 {
            return Err(QueueRefusal::NotEmpty(open));
        }
        for run in self.open_runs(id) {
            self.finish(run, applied, |_| {});
        }
        self.totals.purged += open;
        self.forget(id, applied);
        Ok(Outcome::QueueDeleted(open))
    }

    fn delete_subscription(
        &mut self,
        topic: &str,
        subscription: &str,
        attached_until: Millis,
        applied: &mut Applied<Effect>,
    ) -> Outcome {
        let backlog = self.subscription(topic, subscription).map(|there| there.queue);
        let outcome = self.remove_subscription(topic, subscription, attached_until, applied);
        if let (Outcome::SubscriptionRemoved(Some(_)), Some(id)) = (&outcome, backlog) {
            self.forget(id, applied);
        }
        outcome
    }

    /// Removes a queue whose messages are all done.
    fn forget(&mut self, id: QueueId, applied: &mut Applied<Effect>) {
        let Some(queue) = self.queues.remove(id.0 as usize) else {
            return;
        };
        self.routing.exchanges.unbind_queue(id);
        self.once.queues.forget_scope(&id);
        self.names.remove(&queue.name);
        applied.effects.push(Effect::QueueDeleted { queue: id });
    }
}
