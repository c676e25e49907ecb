//! `PublishStream`: requests in, one answer for each.
//!
//! Requests that have arrived together become one proposal, so that a publisher of single messages costs one proposal for
//! each burst instead of one for each message. Nothing waits for company: what is there is taken.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use boltq_core::MessageId;
use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_proto::queue::v1::{self as wire, PublishFailure, PublishStreamRequest, PublishStreamResponse};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use tonic::Status;

use super::convert;
use super::error::invalid;
use crate::ack_level::AckLevel;
use crate::service::{Admitted, PublishBatch, Published, Queues, ServiceError};
use crate::telemetry::trace::TraceContext;

/// Proposals of one publish stream that may be on their way at once. Beyond it, and when the budget of the group is used
/// up, the server stops reading, and the flow control of HTTP/2 slows the publisher down.
const PROPOSALS_IN_FLIGHT_MAX: usize = 64;
/// Encoded bytes after which no more requests join a proposal: larger ones gain nothing and hold up the first answer.
const BURST_BYTES_MAX: usize = 256 << 10;
/// Requests after which no more join.
const BURST_REQUESTS_MAX: usize = 256;

type Answer = Result<PublishStreamResponse, Status>;

/// Answers the requests of a stream until it ends, one of them is wrong, or the server stops. The stream may be part of a trace.
pub(super) fn answers<R>(queues: Queues, caller: Option<TraceContext>, requests: R) -> impl Stream<Item = Answer> + Send
where
    R: Stream<Item = Result<PublishStreamRequest, Status>> + Unpin + Send + 'static,
{
    let publisher = Publisher {
        queues: queues.clone(),
        caller,
        requests,
        queue: String::new(),
        batch: 0,
        held: None,
        end: None,
    };
    let bursts = stream::unfold(publisher, |mut publisher| async move {
        let burst = publisher.next_admitted().await?;
        Some((burst, publisher))
    });
    let answers = bursts.map(move |burst| {
        let queues = queues.clone();
        async move {
            match burst {
                Ok(burst) => burst.publish(&queues).await,
                Err(status) => VecDeque::from([Err(status)]),
            }
        }
    });
    answers.buffered(PROPOSALS_IN_FLIGHT_MAX).flat_map(stream::iter)
}

/// The reading half of a stream.
struct Publisher<R> {
    queues: Queues,
    caller: Option<TraceContext>,
    requests: R,
    /// What the last request named.
    queue: String,
    /// Number of the last request.
    batch: u64,
    /// It waits for another level than those before it, so it has to be in a proposal of its own.
    held: Option<PublishStreamRequest>,
    /// How the stream ends, once that is known: after the answers to what came before.
    end: Option<Result<(), Status>>,
}

impl<R> Publisher<R>
where
    R: Stream<Item = Result<PublishStreamRequest, Status>> + Unpin,
{
    /// The next requests, with room for them. One burst is encoded and waits; what comes after it stays unread.
    async fn next_admitted(&mut self) -> Option<Result<AdmittedBurst, Status>> {
        let burst = self.next().await?;
        let Burst { batch, level, requests } = match burst {
            Ok(burst) => burst,
            Err(status) => return Some(Err(status)),
        };
        let admitted = match batch.is_empty() {
            true => Ok(None),
            false => self.queues.admit(batch, level).await.map(Some),
        };
        Some(Ok(AdmittedBurst { admitted, requests }))
    }

    /// Waits for one request and takes what came with it.
    async fn next(&mut self) -> Option<Result<Burst, Status>> {
        if self.end.is_none() {
            self.wait_and_encode().await
        } else {
            None
        }
        .map(Ok)
        .or_else(|| match self.end.replace(Ok(())) {
            Some(Err(status)) => Some(Err(status)),
            Some(Ok(())) | None => None,
        })
    }

    async fn wait_and_encode(&mut self) -> Option<Burst> {
        let first = match self.held.take() {
            Some(held) => Some(Ok(held)),
            None => tokio::select! {
                biased;
                () = self.queues.stopping() => {
                    // What was taken is answered; then the publisher is told to go elsewhere.
                    self.end = Some(Err(ServiceError::Stopped.into()));
                    return None;
                }
                first = self.requests.next() => first,
            },
        };
        let mut burst = Burst {
            batch: self.queues.batch(),
            level: AckLevel::Quorum,
            requests: Vec::new(),
        };
        burst.batch.called_in(self.caller.clone());
        self.take(first, &mut burst);
        while self.end.is_none() && self.held.is_none() && !burst.is_full() {
            let ready = poll_fn(|context| Poll::Ready(self.requests.poll_next_unpin(context))).await;
            let Poll::Ready(request) = ready else { break };
            self.take(request, &mut burst);
        }
        (!burst.requests.is_empty()).then_some(burst)
    }

    fn take(&mut self, request: Option<Result<PublishStreamRequest, Status>>, burst: &mut Burst) {
        let taken = match request {
            Some(request) => request.and_then(|request| self.encode(request, burst)),
            None => {
                self.end = Some(Ok(()));
                return;
            }
        };
        if let Err(status) = taken {
            self.end = Some(Err(status));
        }
    }

    fn encode(&mut self, request: PublishStreamRequest, burst: &mut Burst) -> Result<(), Status> {
        let level = level(request.ack_level)?;
        self.queues.check_level(level)?;
        if burst.requests.is_empty() {
            burst.level = level;
        } else if burst.level != level {
            self.held = Some(request);
            return Ok(());
        }
        if !request.queue.is_empty() {
            self.queue = request.queue;
        }
        let given = request.messages.len();
        if given == 0 || given > BATCH_MESSAGES_MAX {
            return Err(invalid(format!(
                "{given} messages in a batch; 1 to {BATCH_MESSAGES_MAX} are allowed"
            )));
        }
        self.batch += 1;
        let mut failures = Vec::new();
        for (index, message) in request.messages.iter().enumerate() {
            if let Err(error) = convert::push(&mut burst.batch, &self.queue, message) {
                failures.push(publish_failure(index, &error));
            }
        }
        burst.requests.push(Encoded {
            number: self.batch,
            level,
            stored: given - failures.len(),
            failures,
        });
        Ok(())
    }
}

fn level(wanted: i32) -> Result<AckLevel, Status> {
    match wire::AckLevel::try_from(wanted) {
        Ok(wire::AckLevel::Unspecified | wire::AckLevel::Quorum) => Ok(AckLevel::Quorum),
        Ok(wire::AckLevel::Leader) => Ok(AckLevel::Leader),
        Ok(wire::AckLevel::None) => Ok(AckLevel::None),
        Err(_) => Err(invalid(format!(
            "ack_level {wanted} is not known; 1 (QUORUM), 2 (LEADER) and 3 (NONE) are"
        ))),
    }
}

/// Requests that share a proposal.
struct Burst {
    batch: PublishBatch,
    level: AckLevel,
    requests: Vec<Encoded>,
}

impl Burst {
    fn is_full(&self) -> bool {
        self.requests.len() >= BURST_REQUESTS_MAX
            || self.batch.bytes() >= BURST_BYTES_MAX
            || self.batch.len() >= BATCH_MESSAGES_MAX
    }
}

/// What became of one request on its way into the proposal.
struct Encoded {
    number: u64,
    level: AckLevel,
    /// Messages that are in the proposal.
    stored: usize,
    /// Those that are not.
    failures: Vec<PublishFailure>,
}

struct AdmittedBurst {
    /// Nothing if all messages were refused.
    admitted: Result<Option<Admitted>, ServiceError>,
    requests: Vec<Encoded>,
}

impl AdmittedBurst {
    async fn publish(self, queues: &Queues) -> VecDeque<Answer> {
        let published = match self.admitted {
            Ok(Some(admitted)) => queues.publish_admitted(admitted).await,
            Ok(None) => Ok(Published::default()),
            Err(error) => Err(error),
        };
        match published {
            Ok(published) => {
                let mut ids = published.ids.as_slice();
                let mut refused = published.refused.as_slice();
                let mut begin = 0;
                let answer = |mut request: Encoded| {
                    let end = begin + request.stored;
                    let (here, later) = refused.split_at(refused.partition_point(|(position, _)| *position < end));
                    request.refuse(here.iter().map(|(position, error)| (position - begin, error)));
                    let (own, others) = ids.split_at(request.stored.min(ids.len()));
                    (begin, ids, refused) = (end, others, later);
                    Ok(request.succeeded(own))
                };
                self.requests.into_iter().map(answer).collect()
            }
            // The stream goes on: the next request may fit.
            Err(error) if error.retry_after().is_some() && !matches!(error, ServiceError::Stopped) => {
                let answer = |request: Encoded| Ok(request.failed(&error));
                self.requests.into_iter().map(answer).collect()
            }
            Err(error) => VecDeque::from([Err(error.into())]),
        }
    }
}

impl Encoded {
    /// Messages at these positions among those that are in the proposal were not stored.
    fn refuse<'e>(&mut self, refused: impl Iterator<Item = (usize, &'e ServiceError)>) {
        let before: Vec<usize> = self.failures.iter().map(|failure| failure.index as usize).collect();
        for (position, error) in refused {
            // In the batch, those count that did not get into the proposal.
            let index = before
                .iter()
                .fold(position, |index, failed| index + usize::from(*failed <= index));
            self.failures.push(publish_failure(index, error));
            self.stored -= 1;
        }
        self.failures.sort_by_key(|failure| failure.index);
    }

    fn succeeded(self, ids: &[MessageId]) -> PublishStreamResponse {
        PublishStreamResponse {
            batch: self.number,
            message_ids: match self.level {
                AckLevel::Quorum => spread(ids, &self.failures),
                AckLevel::Leader | AckLevel::None => Vec::new(),
            },
            failures: self.failures,
        }
    }

    fn failed(mut self, error: &ServiceError) -> PublishStreamResponse {
        let messages = self.stored + self.failures.len();
        let refused: Vec<u32> = self.failures.iter().map(|failure| failure.index).collect();
        let others = (0..messages).filter(|index| !refused.iter().any(|refused| *refused as usize == *index));
        self.failures.extend(others.map(|index| publish_failure(index, error)));
        self.failures.sort_by_key(|failure| failure.index);
        PublishStreamResponse {
            batch: self.number,
            message_ids: match self.level {
                AckLevel::Quorum => vec![Bytes::new(); messages],
                AckLevel::Leader | AckLevel::None => Vec::new(),
            },
            failures: self.failures,
        }
    }
}

fn publish_failure(index: usize, error: &ServiceError) -> PublishFailure {
    PublishFailure {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        reason: error.reason().to_owned(),
        message: error.to_string(),
        retriable: error.retry_after().is_some(),
    }
}

/// One entry for each message of the batch: its id, or nothing where it was refused. All ids lie in one buffer.
fn spread(ids: &[MessageId], failures: &[PublishFailure]) -> Vec<Bytes> {
    let mut buffer = BytesMut::with_capacity(ids.len() * 16);
    for id in ids {
        buffer.extend_from_slice(&id.0);
    }
    let buffer = buffer.freeze();
    let mut spread: Vec<Bytes> = (0..ids.len()).map(|n| buffer.slice(n * 16..(n + 1) * 16)).collect();
    for failure in failures {
        spread.insert(failure.index as usize, Bytes::new());
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_late_is_named_by_its_place_in_the_batch() {
        let full = ServiceError::QueuesFull { queues: 1 };
        let mut request = Encoded {
            number: 1,
            level: AckLevel::Quorum,
            stored: 4,
            failures: [0, 3]
                .map(|index| publish_failure(index, &ServiceError::StorageFull))
                .into(),
        };
        request.refuse([1, 3].map(|position| (position, &full)).into_iter());
        let indexes: Vec<u32> = request.failures.iter().map(|failure| failure.index).collect();
        // Of 0 to 5, those in the proposal are 1, 2, 4 and 5.
        assert_eq!((request.stored, indexes), (2, vec![0, 2, 3, 5]));
        let reasons = request.failures.iter().map(|failure| failure.reason.as_str());
        assert_eq!(
            reasons.collect::<Vec<_>>(),
            ["STORAGE_FULL", "QUEUE_FULL", "STORAGE_FULL", "QUEUE_FULL"]
        );
    }

    #[test]
    fn refused_messages_leave_a_gap_in_the_ids() {
        let failure = |index| PublishFailure {
            index,
            reason: String::new(),
            message: String::new(),
            retriable: false,
        };
        let spread = spread(&[MessageId([1; 16]), MessageId([2; 16])], &[failure(0), failure(2)]);
        assert_eq!(
            spread,
            [
                Bytes::new(),
                Bytes::from(vec![1; 16]),
                Bytes::new(),
                Bytes::from(vec![2; 16])
            ]
        );
    }
}
