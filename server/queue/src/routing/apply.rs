//! Carrying out the commands of topics and exchanges.

use std::collections::BTreeSet;

use boltq_core::{Applied, DecodeError, Millis, RecordHead, record_headers};

use super::command::RoutingCommand;
use super::exchange::Exchange;
use super::topics::Subscription;
use super::{RoutingRefusal, backlog_queue};
use crate::copies::Copies;
use crate::machine::Machine;
use crate::outcome::{Effect, Outcome};
use crate::place::{QueueId, Run, STREAMS, stream_id};
use crate::publishing::{Batch, Expiry, offset_of, single_record, too_far};

/// Messages of a topic keep the order of publishing, whatever their priority: all of them go to one lane.
const TOPIC_LANE: usize = 0;
/// What stands before the name of the topic in a publish: number, count, length.
const TOPIC_AT: usize = 9;

impl Machine {
    /// Topics with durable subscriptions in the byte order of their names, and how many of these each has.
    pub fn topics(&self) -> impl Iterator<Item = (&str, usize)> {
        self.routing
            .topics
            .iter()
            .map(|(name, subscriptions)| (name, subscriptions.len()))
    }

    /// The durable subscriptions of a topic in the byte order of their ids.
    pub fn subscriptions(&self, topic: &str) -> impl Iterator<Item = (&str, Subscription)> {
        self.routing.topics.subscriptions(topic)
    }

    /// A durable subscription.
    #[must_use]
    pub fn subscription(&self, topic: &str, id: &str) -> Option<Subscription> {
        self.routing.topics.get(topic, id)
    }

    /// All exchanges but the default one, in the byte order of their names.
    pub fn exchanges(&self) -> impl Iterator<Item = (&str, &Exchange)> {
        self.routing.exchanges.iter()
    }

    /// The exchange of that name.
    #[must_use]
    pub fn exchange(&self, name: &str) -> Option<&Exchange> {
        self.routing.exchanges.get(name)
    }

    /// Fails before anything has changed, or not at all.
    pub(crate) fn route(
        &mut self,
        now: Millis,
        command: RoutingCommand<'_>,
        offset: u32,
        applied: &mut Applied<Effect>,
    ) -> Result<Outcome, DecodeError> {
        Ok(match command {
            RoutingCommand::PublishTopic {
                topic,
                count,
                records,
                records_at,
                times,
            } => {
                let records_at = offset_of(offset, records_at)?;
                let batch = topic_batch(count, records, records_at, &mut self.expiries)?;
                let topic_at = offset_of(offset, TOPIC_AT)?;
                let copies = Copies { records, batch, times };
                self.publish_topic(topic, topic_at, copies, applied)
            }
            RoutingCommand::Attach {
                topic,
                subscription,
                create,
            } => self.attach(now, topic, subscription, create),
            RoutingCommand::RemoveSubscription {
                topic,
                subscription,
                attached_until,
            } => self.remove_subscription(topic, subscription, attached_until, applied),
            RoutingCommand::DeclareExchange {
                name,
                kind,
                durable,
                alternate,
            } => outcome(
                self.routing.exchanges.declare(name, kind, durable, alternate),
                Outcome::ExchangeDeclared,
            ),
            RoutingCommand::DeleteExchange { name } => {
                self.once.forget_exchange(name);
                outcome(self.routing.exchanges.delete(name), |()| Outcome::Done)
            }
            RoutingCommand::Bind {
                exchange,
                queue,
                key,
                rule,
            } => {
                if self.exchange(exchange).is_none() {
                    return Ok(Outcome::Refused(RoutingRefusal::NoExchange));
                }
                let queue = self.declare(queue);
                let exchange = self.routing.exchanges.get_mut(exchange);
                Outcome::Bound(exchange.is_some_and(|exchange| exchange.bind(key, queue, rule)))
            }
            RoutingCommand::Unbind { exchange, queue, key } => self.unbind(exchange, queue, key),
            RoutingCommand::PublishExchange {
                exchange,
                key,
                record,
                record_at,
                times,
            } => {
                let record_at = offset_of(offset, record_at)?;
                let batch = single_record(record, "routed message", record_at, &mut self.expiries)?;
                let looks = self.routing.exchanges.looks_at_headers(exchange);
                let headers = if looks { sorted_headers(record)? } else { Vec::new() };
                let copies = Copies {
                    records: record,
                    batch,
                    times,
                };
                self.publish_exchange(exchange, key, &headers, copies, applied)
            }
        })
    }

    fn publish_topic(
        &mut self,
        topic: &str,
        topic_at: u32,
        copies: Copies<'_>,
        applied: &mut Applied<Effect>,
    ) -> Outcome {
        let batch = copies.batch;
        if batch.count == 0 {
            return Outcome::PublishedTopic { queues: 0 };
        }
        let mut queues = 0;
        let subscriptions = self.routing.topics.subscriptions(topic);
        let backlogs: Vec<_> = subscriptions.map(|(_, subscription)| subscription.queue).collect();
        for id in backlogs {
            queues += u32::from(self.append_copies(id, copies, applied));
        }
        applied.effects.push(Effect::TopicPublished {
            topic: topic_at,
            // Its length was read from a u32.
            topic_bytes: u32::try_from(topic.len()).unwrap_or(u32::MAX),
            count: batch.count,
            records: batch.offset,
            records_bytes: batch.bytes,
        });
        Outcome::PublishedTopic { queues }
    }

    fn attach(&mut self, now: Millis, topic: &str, subscription: &str, create: bool) -> Outcome {
        let there = self.routing.topics.get(topic, subscription);
        if there.is_none() && !create {
            return Outcome::Attached(None);
        }
        let name = backlog_queue(topic, subscription);
        let known = self.queue(&name);
        if let Some(queue) = known
            && let Err(refusal) = self.routing.topics.check_backlog(topic, subscription, queue)
        {
            return Outcome::Refused(refusal);
        }
        let queue = self.declare(&name);
        self.routing.topics.attach(topic, subscription, queue, now);
        Outcome::Attached(Some(queue))
    }

    /// What was claimed of its backlog is gone like the rest: whoever settles it is told so.
    pub(crate) fn remove_subscription(
        &mut self,
        topic: &str,
        subscription: &str,
        attached_until: Millis,
        applied: &mut Applied<Effect>,
    ) -> Outcome {
        let there = self.routing.topics.get(topic, subscription);
        let Some(there) = there.filter(|there| there.attached <= attached_until) else {
            return Outcome::SubscriptionRemoved(None);
        };
        self.routing.topics.remove(topic, subscription);
        let mut removed = 0;
        for run in self.open_runs(there.queue) {
            removed += self.finish(run, applied, |_| {});
        }
        self.totals.purged += removed;
        Outcome::SubscriptionRemoved(Some(removed))
    }

    /// All messages of a queue that are not done.
    pub(crate) fn open_runs(&self, id: QueueId) -> Vec<Run> {
        let Some(queue) = self.queue_at(id) else {
            return Vec::new();
        };
        let lanes = (0..STREAMS).filter_map(|lane| Some((lane, queue.window(lane)?)));
        let runs = lanes.flat_map(|(lane, window)| {
            let open = window.open_parts(0..u64::MAX);
            open.map(move |range| Run::new(stream_id(id, lane), &range))
        });
        runs.collect()
    }

    fn unbind(&mut self, exchange: &str, queue: &str, key: &str) -> Outcome {
        let queue = self.queue(queue);
        match (self.routing.exchanges.get_mut(exchange), queue) {
            (None, _) => Outcome::Refused(RoutingRefusal::NoExchange),
            (Some(_), None) => Outcome::Unbound(0),
            (Some(exchange), Some(queue)) => Outcome::Unbound(exchange.unbind(key, queue)),
        }
    }

    fn publish_exchange(
        &mut self,
        exchange: &str,
        key: &str,
        headers: &[(&str, &str)],
        copies: Copies<'_>,
        applied: &mut Applied<Effect>,
    ) -> Outcome {
        let mut to = BTreeSet::new();
        if exchange.is_empty() {
            to.insert(self.declare(key));
        } else if let Err(refusal) = self.routing.exchanges.route(exchange, key, headers, &mut to) {
            return Outcome::Refused(refusal);
        }
        let wanted = to.len();
        let have = to.into_iter().filter(|id| self.append_copies(*id, copies, applied));
        let queues = have.count();
        Outcome::Routed {
            queues,
            full: wanted - queues,
        }
    }
}

fn outcome<T>(result: Result<T, RoutingRefusal>, done: impl FnOnce(T) -> Outcome) -> Outcome {
    result.map_or_else(Outcome::Refused, done)
}

/// All records of a publish to a topic, as one batch.
fn topic_batch(count: u32, records: &[u8], offset: u32, expiries: &mut Vec<Expiry>) -> Result<Batch, DecodeError> {
    let mut at = 0;
    expiries.clear();
    for record in 0..count {
        let head = RecordHead::read(&records[at..])?;
        expiries.extend(head.expires.map(|at| Expiry { record, at }));
        at += head.bytes;
    }
    if at != records.len() {
        return Err(DecodeError::Invalid {
            what: "records",
            why: "there are more bytes than their count accounts for",
        });
    }
    // That the last of them is within the entry, too.
    offset_of(offset, at)?;
    Ok(Batch {
        lane: TOPIC_LANE,
        count,
        expiring: expiries.len(),
        offset,
        bytes: u32::try_from(at).map_err(|_| too_far())?,
    })
}

fn sorted_headers(record: &[u8]) -> Result<Vec<(&str, &str)>, DecodeError> {
    let mut headers = record_headers(record)?;
    // Of a header given twice the last counts, as everywhere.
    headers.reverse();
    headers.sort_by_key(|(key, _)| *key);
    headers.dedup_by_key(|(key, _)| *key);
    Ok(headers)
}
