//! Neighbouring requests of one kind, which become one call of the service.

use std::borrow::Cow;

use boltq_core::limits::BATCH_MESSAGES_MAX;

use super::reply::Refusal;
use super::request::{Request, Single};
use crate::doors::exchanges::{push_exchange, push_queue, push_topic};
use crate::doors::requests::{Publish, PublishExchange};
use crate::service::{PublishBatch, Queues, RoutedBatch, ServiceError, Settlement};

/// Encoded bytes after which a batch is full: larger ones gain nothing and hold up the answers in front.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A run has at least one request.
pub(super) enum Run<'a> {
    Publish(PublishRun<'a>),
    Routed(RoutedRun<'a>),
    /// ACKs, or NACKs, and the ids as they were sent.
    Settle {
        how: Settlement,
        ids: Vec<Cow<'a, str>>,
    },
    /// So many CONSUMEs from one queue.
    Consume {
        queue: Cow<'a, str>,
        count: usize,
    },
}

/// What a request is to the requests before it.
pub(super) enum Next<'a> {
    /// It went into the run.
    Joined,
    /// It starts a run of its own.
    Run(Run<'a>),
    /// It is answered alone.
    Alone(Single<'a>),
}

const NACK: Settlement = Settlement::Nack {
    delay: None,
    dead_letter: false,
};

impl<'a> Run<'a> {
    /// Puts a request into the run in front of it, or starts a new one if it belongs to none or that one is full.
    pub(super) fn next(current: Option<&mut Self>, request: Request<'a>, queues: &Queues) -> Next<'a> {
        match (current, request) {
            (Some(Self::Publish(run)), Request::Publish(publish)) if !run.is_full() => run.add(&publish),
            (Some(Self::Publish(run)), Request::Single(Single::Refused(text))) => run.refuse(text),
            (Some(Self::Routed(run)), Request::PublishTopic(publish)) if !run.is_full() => run.add_topic(&publish),
            (Some(Self::Routed(run)), Request::PublishExchange(publish)) if !run.is_full() => {
                run.add_exchange(&publish);
            }
            (
                Some(Self::Settle {
                    how: Settlement::Ack,
                    ids,
                }),
                Request::Ack(id),
            ) if !is_full(ids) => ids.push(id),
            (Some(Self::Settle { how: NACK, ids }), Request::Nack(id)) if !is_full(ids) => ids.push(id),
            (Some(Self::Consume { queue, count }), Request::Consume(same)) if *queue == same => *count += 1,
            (_, request) => return Self::start(request, queues),
        }
        Next::Joined
    }

    fn start(request: Request<'a>, queues: &Queues) -> Next<'a> {
        let settle = |how, id| Self::Settle { how, ids: vec![id] };
        Next::Run(match request {
            Request::Publish(publish) => {
                let mut run = PublishRun::new(queues.batch());
                run.add(&publish);
                Self::Publish(run)
            }
            Request::PublishTopic(publish) => {
                let mut run = RoutedRun::new(queues);
                run.add_topic(&publish);
                Self::Routed(run)
            }
            Request::PublishExchange(publish) => {
                let mut run = RoutedRun::new(queues);
                run.add_exchange(&publish);
                Self::Routed(run)
            }
            Request::Ack(id) => settle(Settlement::Ack, id),
            Request::Nack(id) => settle(NACK, id),
            Request::Consume(queue) => Self::Consume { queue, count: 1 },
            Request::Single(single) => return Next::Alone(single),
        })
    }
}

fn is_full(ids: &[Cow<'_, str>]) -> bool {
    ids.len() >= BATCH_MESSAGES_MAX
}

/// PUBLISHes, and what stood between them and was refused.
pub(super) struct PublishRun<'a> {
    pub(super) batch: PublishBatch,
    /// For each request the queue, if it is in the batch, or why it is not.
    pub(super) requests: Vec<Result<Cow<'a, str>, Refusal>>,
}

impl<'a> PublishRun<'a> {
    fn new(batch: PublishBatch) -> Self {
        Self {
            batch,
            requests: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.requests.len() >= BATCH_MESSAGES_MAX || self.batch.bytes() >= BATCH_BYTES_MAX
    }

    fn add(&mut self, publish: &Publish<'a>) {
        let added = push_queue(&mut self.batch, publish);
        let queue = publish.topic.clone();
        self.requests
            .push(added.map(|()| queue).map_err(|error| Refusal::from(&error)));
    }

    fn refuse(&mut self, text: Cow<'static, str>) {
        self.requests.push(Err(Refusal::Error(text.into_owned())));
    }
}

/// Messages to topics and exchanges.
pub(super) struct RoutedRun<'a> {
    /// Or why there can be none.
    pub(super) batch: Result<RoutedBatch, Refusal>,
    /// For each request how it is answered, if it is in the batch, or why it is not.
    pub(super) requests: Vec<Result<Asked<'a>, Refusal>>,
}

/// How a publish to a topic or an exchange is answered.
pub(super) struct Asked<'a> {
    /// What the reply calls the topic.
    pub(super) topic: Cow<'a, str>,
    /// Whether it tells the number of queues.
    pub(super) tells: bool,
}

impl<'a> RoutedRun<'a> {
    fn new(queues: &Queues) -> Self {
        Self {
            batch: queues.routed_batch().map_err(|error| Refusal::from(&error)),
            requests: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        let bytes = self.batch.as_ref().map_or(0, RoutedBatch::bytes);
        self.requests.len() >= BATCH_MESSAGES_MAX || bytes >= BATCH_BYTES_MAX
    }

    fn add_exchange(&mut self, publish: &PublishExchange<'a>) {
        let asked = Asked {
            topic: publish.reply_topic(),
            tells: true,
        };
        self.add(asked, |batch| push_exchange(batch, publish));
    }

    fn add_topic(&mut self, publish: &Publish<'a>) {
        let asked = Asked {
            topic: publish.topic.clone(),
            tells: false,
        };
        self.add(asked, |batch| push_topic(batch, publish));
    }

    fn add(&mut self, asked: Asked<'a>, push: impl FnOnce(&mut RoutedBatch) -> Result<(), ServiceError>) {
        let added = match &mut self.batch {
            Ok(batch) => push(batch).map_err(|error| Refusal::from(&error)),
            Err(refusal) => Err(refusal.clone()),
        };
        self.requests.push(added.map(|()| asked));
    }
}
