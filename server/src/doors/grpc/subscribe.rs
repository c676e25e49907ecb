//! The two directions of a subscription.
//!
//! One task reads settlements, gathers all that are there into one call of the service, and answers those that asked for
//! an answer. The other leases messages as long as the client has room for more. Both write into one channel that holds
//! a few responses, so a client that does not read stops both. Before messages are leased there is room for a response with
//! them, see `intake`, and it is given back when the response has left.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_proto::queue::v1::subscribe_request::Request as Kind;
use boltq_proto::queue::v1::{SettleFailure, Settled, SubscribeInit, SubscribeRequest, SubscribeResponse};
use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use prost::Message;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::convert::{self, Handles};
use super::error::invalid;
use crate::doors::intake::{Hold, Reader, StreamRoom};
use crate::plane::Attachment;
use crate::service::{ANSWER_BYTES_MAX, Consumer, Queues, ServiceError, Settlement};

const IN_FLIGHT_DEFAULT: usize = 256;
const IN_FLIGHT_MAX: usize = 100_000;
const BATCH_DEFAULT: usize = 128;
/// Responses that may wait for the socket.
const RESPONSES_MAX: usize = 16;

/// A response, with the room that it takes.
pub(super) type Queued<T> = (Result<T, Status>, Option<Hold>);
type Responses = mpsc::Sender<Queued<SubscribeResponse>>;

struct Subscription {
    queues: Queues,
    consumer: Consumer,
    attachment: Attachment,
    max_in_flight: usize,
    max_batch: usize,
    lease: Option<Duration>,
    /// Cancelled when the client wants no more deliveries.
    stopped: CancellationToken,
    room: Room,
}

/// Where room for responses comes from.
struct Room {
    /// None: nothing is counted.
    reader: Option<Arc<Reader>>,
    stream: StreamRoom,
}

impl Room {
    async fn hold(&self) -> Option<Hold> {
        match &self.reader {
            Some(reader) => Some(reader.hold(ANSWER_BYTES_MAX, Some(&self.stream)).await),
            None => None,
        }
    }
}

/// Responses in their order.
pub(super) struct Sending<T> {
    responses: mpsc::Receiver<Queued<T>>,
    /// Room of the last one, which is on its way until the next is asked for.
    last: Option<Hold>,
}

impl<T> Sending<T> {
    pub(super) fn new(responses: mpsc::Receiver<Queued<T>>) -> Self {
        Self { responses, last: None }
    }
}

// Nothing in it is pinned.
impl<T> Unpin for Sending<T> {}

impl<T> Stream for Sending<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.last = None;
        let next = ready!(self.responses.poll_recv(context));
        Poll::Ready(next.map(|(response, hold)| {
            self.last = hold;
            response
        }))
    }
}

/// Starts a subscription whose first request has to be its init.
pub(super) async fn open(
    queues: Queues,
    reader: Option<Arc<Reader>>,
    mut requests: Streaming<SubscribeRequest>,
) -> Result<impl Stream<Item = Result<SubscribeResponse, Status>>, Status> {
    let Some(SubscribeRequest {
        request: Some(Kind::Init(init)),
    }) = requests.message().await?
    else {
        return Err(invalid("the first request of a subscription has to be init"));
    };
    let subscription = Arc::new(Subscription::new(queues, reader, init).await?);
    let (responses, receiver) = mpsc::channel(RESPONSES_MAX);
    let settling = subscription.clone();
    tokio::spawn(async move {
        let outcome = tokio::select! {
            outcome = settling.settle(requests, &responses) => outcome,
            outcome = subscription.deliver(&responses) => outcome,
            // The client went away; its leases end with the subscription.
            () = responses.closed() => return,
        };
        if let Err(status) = outcome {
            // A client that is gone needs no status.
            let _ = responses.send((Err(status), None)).await;
        }
    });
    Ok(Sending::new(receiver))
}

impl Subscription {
    async fn new(queues: Queues, reader: Option<Arc<Reader>>, init: SubscribeInit) -> Result<Self, Status> {
        let max_in_flight = convert::count(init.max_in_flight, "max_in_flight", IN_FLIGHT_DEFAULT, IN_FLIGHT_MAX)?;
        let max_batch = convert::count(init.max_batch, "max_batch", BATCH_DEFAULT, BATCH_MESSAGES_MAX)?;
        let lease = convert::lease(init.lease)?;
        let attachment = queues.attach(&init.queue).await?;
        let consumer = queues.consumer();
        Ok(Self {
            queues,
            consumer,
            attachment,
            max_in_flight,
            max_batch,
            lease,
            stopped: CancellationToken::new(),
            room: Room {
                reader,
                stream: StreamRoom::new(),
            },
        })
    }

    async fn deliver(&self, responses: &Responses) -> Result<(), Status> {
        // What is leased and not sent when the client wants no more is given back.
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => {}
            outcome = self.deliver_all(responses) => return outcome,
        }
        self.queues.stopping().await;
        Err(ServiceError::Stopped.into())
    }

    async fn deliver_all(&self, responses: &Responses) -> Result<(), Status> {
        loop {
            let free = self.max_in_flight.saturating_sub(self.consumer.held());
            if free == 0 {
                tokio::select! {
                    () = self.consumer.room() => continue,
                    () = self.queues.stopping() => return Err(ServiceError::Stopped.into()),
                }
            }
            // A place in the channel first: what is leased can then be sent at once.
            let Ok(permit) = responses.reserve().await else {
                return Ok(());
            };
            let max = free.min(self.max_batch);
            let next = self
                .queues
                .next_deliveries(&self.consumer, &self.attachment, max, self.lease, || self.room.hold());
            let (deliveries, mut hold) = next.await?;
            let response = SubscribeResponse {
                deliveries: deliveries.iter().map(convert::delivery).collect(),
                settled: Vec::new(),
            };
            if let Some(hold) = &mut hold {
                hold.shrink(response.encoded_len());
            }
            permit.send((Ok(response), hold));
        }
    }

    /// Ends when the client has closed its side. Deliveries end with it: nobody could settle them any more.
    async fn settle(&self, mut requests: Streaming<SubscribeRequest>, responses: &Responses) -> Result<(), Status> {
        let mut held_over = None;
        loop {
            let first = match held_over.take() {
                Some(request) => request,
                None => match requests.next().await {
                    Some(request) => request?,
                    None => return Ok(()),
                },
            };
            let mut gathered = Gathered::new(first)?;
            while gathered.tokens.len() < BATCH_MESSAGES_MAX {
                let Some(Some(next)) = requests.next().now_or_never() else {
                    break;
                };
                if let Some(other) = gathered.add(next?)? {
                    held_over = Some(other);
                    break;
                }
            }
            self.carry_out(gathered, responses).await?;
        }
    }

    async fn carry_out(&self, gathered: Gathered, responses: &Responses) -> Result<(), Status> {
        let Gathered { action, tokens, parts } = gathered;
        if action == Action::Stop {
            self.stopped.cancel();
        }
        let mut failures = Vec::new();
        for chunk in tokens.chunks(BATCH_MESSAGES_MAX) {
            let handles = Handles::read(chunk.to_vec(), Vec::new())?;
            let results = match action {
                Action::Settle(how) => self.queues.settle(how, &handles.handles).await?,
                Action::Extend(lease) => self.queues.extend(&handles.handles, lease)?,
                // It has no tokens.
                Action::Stop => Vec::new(),
            };
            failures.extend(handles.answer(&results).1);
        }
        let settled = answers(&parts, &tokens, &failures);
        if !settled.is_empty() {
            let response = SubscribeResponse {
                deliveries: Vec::new(),
                settled,
            };
            // A client that is gone ends the subscription by itself.
            let _ = responses.send((Ok(response), None)).await;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Settle(Settlement),
    Extend(Duration),
    /// Deliver no more.
    Stop,
}

/// Requests of one kind that are carried out together.
struct Gathered {
    action: Action,
    tokens: Vec<Bytes>,
    /// Request id and number of tokens of each request.
    parts: Vec<(u64, usize)>,
}

impl Gathered {
    fn new(request: SubscribeRequest) -> Result<Self, Status> {
        let action = action(&request)?;
        let (tokens, request_id) = take_tokens(request);
        Ok(Self {
            action,
            parts: vec![(request_id, tokens.len())],
            tokens,
        })
    }

    /// Gives the request back if it asks for something else.
    fn add(&mut self, request: SubscribeRequest) -> Result<Option<SubscribeRequest>, Status> {
        if action(&request)? != self.action {
            return Ok(Some(request));
        }
        let (tokens, request_id) = take_tokens(request);
        self.parts.push((request_id, tokens.len()));
        self.tokens.extend(tokens);
        Ok(None)
    }
}

fn action(request: &SubscribeRequest) -> Result<Action, Status> {
    match &request.request {
        Some(Kind::Ack(_)) => Ok(Action::Settle(Settlement::Ack)),
        Some(Kind::Nack(nack)) => {
            let how = convert::nack(nack.delay, nack.dead_letter, nack.release)?;
            Ok(Action::Settle(how))
        }
        Some(Kind::Extend(extend)) => {
            let lease = convert::lease(extend.lease)?.ok_or_else(|| invalid("extend.lease is missing"))?;
            Ok(Action::Extend(lease))
        }
        Some(Kind::Init(_)) => Err(invalid(
            "init has to be the first request of a subscription, and the only one",
        )),
        Some(Kind::Stop(_)) => Ok(Action::Stop),
        None => Err(invalid("the request is empty")),
    }
}

/// Tokens and number of a request that has an action.
fn take_tokens(request: SubscribeRequest) -> (Vec<Bytes>, u64) {
    match request.request {
        Some(Kind::Ack(ack)) => (ack.delivery_tokens, ack.request_id),
        Some(Kind::Nack(nack)) => (nack.delivery_tokens, nack.request_id),
        Some(Kind::Extend(extend)) => (extend.delivery_tokens, extend.request_id),
        Some(Kind::Init(_) | Kind::Stop(_)) | None => (Vec::new(), 0),
    }
}

/// The answers to those requests that have a number, each with the failures of its own tokens.
fn answers(parts: &[(u64, usize)], tokens: &[Bytes], failures: &[SettleFailure]) -> Vec<Settled> {
    let mut answers = Vec::new();
    let mut start = 0;
    for (request_id, count) in parts {
        let own = &tokens[start..start + count];
        start += count;
        if *request_id != 0 {
            let failures = failures
                .iter()
                .filter(|failure| own.contains(&failure.token))
                .cloned()
                .collect();
            answers.push(Settled {
                request_id: *request_id,
                failures,
            });
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_requests_are_answered_and_only_with_their_own_failures() {
        let token = |n: u8| Bytes::from(vec![n]);
        let failure = |n| SettleFailure {
            token: token(n),
            reason: 2,
        };
        let answers = answers(
            &[(0, 1), (7, 2), (8, 1)],
            &[token(1), token(2), token(3), token(4)],
            &[failure(1), failure(3)],
        );
        assert_eq!(
            answers,
            [
                Settled {
                    request_id: 7,
                    failures: vec![failure(3)]
                },
                Settled {
                    request_id: 8,
                    failures: Vec::new()
                },
            ]
        );
    }
}
