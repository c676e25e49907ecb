//! `boltq.topic.v1.TopicService`.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_proto::topic::v1::topic_service_server::TopicService;
use boltq_proto::topic::v1::{
    DeleteSubscriptionRequest, DeleteSubscriptionResponse, ListSubscriptionsRequest, ListSubscriptionsResponse,
    ListTopicsRequest, ListTopicsResponse, PublishFailure, PublishRequest, PublishResponse, PublishStreamRequest,
    PublishStreamResponse, SubscribeRequest, SubscribeResponse, Subscription, Topic,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::mpsc;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

use super::error::{DOMAIN, invalid};
use super::{convert, queue};
use crate::doors::intake::{Hold, Reader, StreamRoom};
use crate::doors::pump::{Item, Taking, pump};
use crate::doors::traced;
use crate::service::{
    ANSWER_BYTES_MAX, AdmittedRouted, NewSubscription, Pushes, Queues, ServiceError, SubscriptionEnd,
};
use crate::telemetry::trace::TraceContext;

const PAGE_DEFAULT: usize = 100;
const IN_FLIGHT_DEFAULT: usize = 256;
const IN_FLIGHT_MAX: usize = 100_000;
/// Batches that wait for the transport.
const BATCHES_MAX: usize = 1;
/// Proposals of one publish stream that may be on their way at once.
const PROPOSALS_IN_FLIGHT_MAX: usize = 64;
/// What a message has on the wire beyond payload and headers, more or less, in bytes.
const ENVELOPE_BYTES: usize = 128;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(super) struct TopicDoor {
    queues: Queues,
}

impl TopicDoor {
    pub(super) fn new(queues: Queues) -> Self {
        Self { queues }
    }
}

#[tonic::async_trait]
impl TopicService for TopicDoor {
    async fn publish(&self, request: Request<PublishRequest>) -> Result<Response<PublishResponse>, Status> {
        let caller = traced::context(&self.queues, request.metadata().as_ref());
        let request = request.into_inner();
        let message = request.message.ok_or_else(|| invalid("message is missing"))?;
        let mut batch = self.queues.routed_batch()?;
        batch.called_in(caller);
        convert::push_topic(&mut batch, &request.topic, &message)?;
        let routed = batch.publish().await?.pop().ok_or(ServiceError::Stopped)??;
        Ok(Response::new(PublishResponse {
            message_id: Bytes::copy_from_slice(&routed.id.0),
            durable_subscriptions: routed.queues as u64,
        }))
    }

    type PublishStreamStream = Answers<PublishStreamResponse>;

    async fn publish_stream(
        &self,
        request: Request<Streaming<PublishStreamRequest>>,
    ) -> Result<Response<Self::PublishStreamStream>, Status> {
        let publisher = Publisher {
            queues: self.queues.clone(),
            caller: traced::context(&self.queues, request.metadata().as_ref()),
            requests: request.into_inner(),
            topic: String::new(),
            batch: 0,
            ended: false,
        };
        let admitted = stream::unfold(publisher, |mut publisher| async move {
            let next = publisher.next().await?;
            Some((next, publisher))
        });
        let answers = admitted.map(|next| async { next?.publish().await });
        Ok(Response::new(Box::pin(answers.buffered(PROPOSALS_IN_FLIGHT_MAX))))
    }

    type SubscribeStream = Answers<SubscribeResponse>;

    async fn subscribe(&self, request: Request<SubscribeRequest>) -> Result<Response<Self::SubscribeStream>, Status> {
        let room = Room {
            reader: queue::reader(&request),
            stream: Arc::new(StreamRoom::new()),
        };
        let request = request.into_inner();
        let new = NewSubscription {
            topic: &request.topic,
            id: Some(request.subscription.as_str()).filter(|id| !id.is_empty()),
            durable: request.durable,
            buffer: convert::count(request.max_in_flight, "max_in_flight", IN_FLIGHT_DEFAULT, IN_FLIGHT_MAX)?,
        };
        let subscribed = self.queues.subscribe(new).await?;
        let (out, items) = mpsc::channel(BATCHES_MAX);
        let hold = move || {
            let room = room.clone();
            async move { room.hold().await }
        };
        tokio::spawn(pump(subscribed, hold, out, |_, item| fitted(item)));
        let responses = Taking::new(items).map(|item| item.map(|pushes| response(&pushes)).map_err(ended));
        Ok(Response::new(Box::pin(responses)))
    }

    async fn list_topics(&self, request: Request<ListTopicsRequest>) -> Result<Response<ListTopicsResponse>, Status> {
        let request = request.into_inner();
        let max = convert::count(request.page_size, "page_size", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?;
        let (page, more) = self.queues.topics(&request.page_token, max);
        let last = page.last().filter(|_| more).map(|last| last.name.clone());
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let topics = page.into_iter().map(|topic| Topic {
            name: topic.name,
            durable_subscriptions: number(topic.durable_subscriptions as u64),
            subscribers: number(topic.subscribers),
        });
        Ok(Response::new(ListTopicsResponse {
            topics: topics.collect(),
            next_page_token: last.unwrap_or_default(),
        }))
    }

    async fn list_subscriptions(
        &self,
        request: Request<ListSubscriptionsRequest>,
    ) -> Result<Response<ListSubscriptionsResponse>, Status> {
        let request = request.into_inner();
        let max = convert::count(request.page_size, "page_size", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?;
        let (page, more) = self.queues.subscriptions(&request.topic, &request.page_token, max);
        let last = page.last().filter(|_| more).map(|last| last.id.clone());
        let subscriptions = page.into_iter().map(|info| Subscription {
            subscription: info.id,
            queue: info.queue,
            backlog: info.backlog,
            last_attached_at: Some(convert::timestamp_ns(info.attached.0.saturating_mul(1_000_000))),
        });
        Ok(Response::new(ListSubscriptionsResponse {
            subscriptions: subscriptions.collect(),
            next_page_token: last.unwrap_or_default(),
        }))
    }

    async fn delete_subscription(
        &self,
        request: Request<DeleteSubscriptionRequest>,
    ) -> Result<Response<DeleteSubscriptionResponse>, Status> {
        let DeleteSubscriptionRequest { topic, subscription } = request.into_inner();
        let purged = self.queues.delete_subscription(&topic, &subscription).await?;
        Ok(Response::new(DeleteSubscriptionResponse { purged }))
    }
}

/// Where room for responses comes from.
#[derive(Clone)]
struct Room {
    /// None: nothing is counted.
    reader: Option<Arc<Reader>>,
    stream: Arc<StreamRoom>,
}

impl Room {
    async fn hold(&self) -> Option<Hold> {
        match &self.reader {
            Some(reader) => Some(reader.hold(ANSWER_BYTES_MAX, Some(&self.stream)).await),
            None => None,
        }
    }
}

/// Gives back the room that messages do not take.
fn fitted(mut item: Item<Option<Hold>>) -> Item<Option<Hold>> {
    if let Item::Pushes(batch) = &mut item
        && let Some(Some(hold)) = &mut batch.room
    {
        let bytes = batch.pushes.messages.iter().map(|push| {
            let headers = push.record.headers().map(|(key, value)| key.len() + value.len() + 8);
            push.record.payload.len() + headers.sum::<usize>() + ENVELOPE_BYTES
        });
        hold.shrink(bytes.sum());
    }
    item
}

fn response(pushes: &Pushes) -> SubscribeResponse {
    SubscribeResponse {
        messages: pushes.messages.iter().map(convert::topic_message).collect(),
        dropped: pushes.dropped,
    }
}

fn ended(end: SubscriptionEnd) -> Status {
    match end {
        SubscriptionEnd::Failed(error) => error.into(),
        SubscriptionEnd::Replaced => {
            let details = ErrorDetails::with_error_info("SUBSCRIPTION_REPLACED", DOMAIN, HashMap::new());
            let text = "somebody else subscribed with this topic and subscription, or it was deleted";
            Status::with_error_details(Code::Aborted, text, details)
        }
    }
}

/// The reading half of a publish stream.
struct Publisher {
    queues: Queues,
    caller: Option<TraceContext>,
    requests: Streaming<PublishStreamRequest>,
    /// What the last request named.
    topic: String,
    /// Number of the last request.
    batch: u64,
    ended: bool,
}

/// A request whose messages have room, or why they have none.
struct Admitted {
    admitted: Result<Option<AdmittedRouted>, ServiceError>,
    number: u64,
    given: usize,
    failures: Vec<PublishFailure>,
}

impl Publisher {
    /// The next request. What comes after it stays unread until it has room.
    async fn next(&mut self) -> Option<Result<Admitted, Status>> {
        if self.ended {
            return None;
        }
        let request = tokio::select! {
            biased;
            () = self.queues.stopping() => Some(Err(ServiceError::Stopped.into())),
            request = self.requests.next() => request,
        };
        let admitted = match request {
            Some(Ok(request)) => self.admit(request).await,
            Some(Err(status)) => Err(status),
            None => return None,
        };
        self.ended = admitted.is_err();
        Some(admitted)
    }

    async fn admit(&mut self, request: PublishStreamRequest) -> Result<Admitted, Status> {
        if !request.topic.is_empty() {
            self.topic = request.topic;
        }
        let given = request.messages.len();
        if given == 0 || given > BATCH_MESSAGES_MAX {
            return Err(invalid(format!(
                "{given} messages in a batch; 1 to {BATCH_MESSAGES_MAX} are allowed"
            )));
        }
        self.batch += 1;
        let mut batch = self.queues.routed_batch()?;
        batch.called_in(self.caller.clone());
        let mut failures = Vec::new();
        for (index, message) in request.messages.iter().enumerate() {
            if let Err(error) = convert::push_topic(&mut batch, &self.topic, message) {
                failures.push(failure(index, &error));
            }
        }
        let admitted = match batch.is_empty() {
            true => Ok(None),
            false => batch.admit().await.map(Some),
        };
        Ok(Admitted {
            admitted,
            number: self.batch,
            given,
            failures,
        })
    }
}

impl Admitted {
    async fn publish(mut self) -> Result<PublishStreamResponse, Status> {
        let published = match self.admitted {
            Ok(Some(admitted)) => admitted.publish().await,
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let published = match published {
            Ok(published) => published,
            // The stream goes on: the next request may fit.
            Err(error) if error.retry_after().is_some() && !matches!(error, ServiceError::Stopped) => {
                let stored = self.given - self.failures.len();
                vec![Err(error); stored]
            }
            Err(error) => return Err(error.into()),
        };
        let refused: Vec<usize> = self.failures.iter().map(|failure| failure.index as usize).collect();
        let mut published = published.into_iter();
        let mut message_ids = Vec::with_capacity(self.given);
        for index in 0..self.given {
            let outcome = if refused.contains(&index) {
                None
            } else {
                published.next()
            };
            message_ids.push(match outcome {
                Some(Ok(routed)) => Bytes::copy_from_slice(&routed.id.0),
                Some(Err(error)) => {
                    self.failures.push(failure(index, &error));
                    Bytes::new()
                }
                None => Bytes::new(),
            });
        }
        self.failures.sort_by_key(|failure| failure.index);
        Ok(PublishStreamResponse {
            batch: self.number,
            message_ids,
            failures: self.failures,
        })
    }
}

fn failure(index: usize, error: &ServiceError) -> PublishFailure {
    PublishFailure {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        reason: error.reason().to_owned(),
        message: error.to_string(),
        retriable: error.retry_after().is_some(),
    }
}
