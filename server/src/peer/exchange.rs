//! Carries out the requests of one peer: each is started in the order of arrival, and then goes its own way.

use std::sync::Arc;
use std::time::Duration;

use boltq_proto::internal::v1::{ExchangeRequest, ExchangeResponse, exchange_request, exchange_response};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::task::unconstrained;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::debug;

use super::budget::{Budget, Room, Target};
use super::config::{PeerLimits, WITHIN_MAX};
use super::metrics::Open;
use super::shared::Shared;

/// How much more is taken from a peer than it may have outstanding: it does not count calls that timed out any more.
const PATIENCE: usize = 2;

/// An answer with the room that it takes until HTTP/2 has it.
type Answered = (ExchangeResponse, Option<Room>);

/// Room for the requests of one connection.
pub(super) fn budget(limits: &PeerLimits) -> Arc<Budget> {
    Budget::new(
        limits.outstanding_requests_max.saturating_mul(PATIENCE),
        limits.outstanding_bytes_max.saturating_mul(PATIENCE),
    )
}

/// The answers to `requests`.
pub(super) fn serve(
    shared: Arc<Shared>,
    budget: Arc<Budget>,
    requests: Streaming<ExchangeRequest>,
) -> BoxStream<'static, Result<ExchangeResponse, Status>> {
    // One part for requests that are carried out, which the budget bounds, and one for refusals.
    let (answers, answered) = mpsc::channel(
        shared
            .dialer
            .limits
            .outstanding_requests_max
            .saturating_mul(PATIENCE + 1),
    );
    let ended = shared.stop.child_token();
    let tasks = shared.tasks.clone();
    let exchange = Exchange {
        budget,
        answers,
        ended: ended.clone(),
        shared,
    };
    tasks.spawn(exchange.run(requests));
    ReceiverStream::new(answered)
        .map(|(response, room)| {
            drop(room);
            Ok(response)
        })
        .take_until(ended.cancelled_owned())
        .boxed()
}

struct Exchange {
    shared: Arc<Shared>,
    budget: Arc<Budget>,
    answers: mpsc::Sender<Answered>,
    /// Ends the answers too.
    ended: CancellationToken,
}

impl Exchange {
    async fn run(self, mut requests: Streaming<ExchangeRequest>) {
        let _open = Open::new(&self.shared.dialer.metrics.incoming_open);
        let mut ended = std::pin::pin!(self.ended.cancelled());
        let mut closed = std::pin::pin!(self.answers.closed());
        loop {
            let request = tokio::select! {
                biased;
                () = &mut ended => return,
                () = &mut closed => return,
                request = requests.message() => request,
            };
            match request {
                Ok(Some(request)) => {
                    if !self.start(request) {
                        debug!("a peer sends more than it may and does not read the refusals");
                        return self.ended.cancel();
                    }
                }
                // What is under way is still answered.
                Ok(None) => return,
                Err(status) => {
                    debug!(%status, "requests of a peer ended");
                    return self.ended.cancel();
                }
            }
        }
    }

    /// Polls the work once before the next request is read, so that work starts in the order of the requests; most of it
    /// is then done or handed on. Not constrained, as work that the scheduler tells to come again later has not started.
    fn start(&self, request: ExchangeRequest) -> bool {
        let metrics = &self.shared.dialer.metrics;
        metrics.requests.add(1);
        let id = request.id;
        let target = match request.target {
            Some(exchange_request::Target::Group(group)) => Target::Group(group),
            Some(exchange_request::Target::Service(service)) => Target::Service(service),
            None => return self.refuse(id, "a request that this version cannot read".to_owned(), None),
        };
        let Some(room) = self.budget.take(target, request.payload.len()) else {
            return self.refuse(id, "overloaded: too many requests wait for their turn".to_owned(), None);
        };
        let mut work = match self.shared.begin(target, request.payload) {
            Ok(work) => work,
            Err(why) => return self.refuse(id, why, Some(room)),
        };
        if let Some(result) = unconstrained(&mut work).now_or_never() {
            return self.answer(id, result, room);
        }
        let within = Duration::from_millis(request.within_ms.into()).min(WITHIN_MAX);
        let exchange = self.part();
        self.shared.tasks.spawn(async move {
            let stop = exchange.shared.stop.clone();
            let result = tokio::select! {
                () = stop.cancelled() => return,
                result = timeout(within, work) => result,
            };
            // The caller has given up by then.
            if let Ok(result) = result {
                exchange.answer(id, result, room);
            }
        });
        true
    }

    fn part(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            budget: self.budget.clone(),
            answers: self.answers.clone(),
            ended: self.ended.clone(),
        }
    }

    fn answer(&self, id: u64, result: Result<Bytes, String>, mut room: Room) -> bool {
        let answer = match result {
            Ok(answer) => answer,
            Err(why) => return self.refuse(id, why, Some(room)),
        };
        let (bytes, max) = (answer.len(), self.shared.dialer.limits.message_bytes_max);
        if bytes > max {
            let why = format!("the answer has {bytes} bytes; at most {max} are sent");
            return self.refuse(id, why, Some(room));
        }
        if !room.grow(bytes) {
            let why = "overloaded: too many answers wait to be read".to_owned();
            return self.refuse(id, why, Some(room));
        }
        let result = Some(exchange_response::Result::Answer(answer));
        self.push(ExchangeResponse { id, result }, Some(room))
    }

    fn refuse(&self, id: u64, why: String, room: Option<Room>) -> bool {
        self.shared.dialer.metrics.requests_refused.add(1);
        let result = Some(exchange_response::Result::Refusal(why));
        self.push(ExchangeResponse { id, result }, room)
    }

    /// False if there is no room even for refusals.
    fn push(&self, response: ExchangeResponse, room: Option<Room>) -> bool {
        let pushed = self.answers.try_send((response, room));
        !matches!(pushed, Err(mpsc::error::TrySendError::Full(_)))
    }
}
