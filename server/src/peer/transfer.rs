//! Requests that are too large for a message: each on a connection of its own, so that nothing waits behind it.
//!
//! The sender is done only when it says so: a stream that just ends, in whatever way, is an error for the receiver. Both
//! sides watch for progress: the sender until it has the answer, the receiver while it waits for a chunk.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::GroupId;
use boltq_proto::internal::v1::{
    TransferEnd, TransferRequest, TransferResponse, TransferStart, transfer_request::Step, transfer_response,
};
use boltq_raft::{Peer, TransportError};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Request, Status, Streaming};

use super::config::WITHIN_MAX;
use super::dial::{Dialer, Use, message};
use super::shared::Shared;

/// How much longer than the sender a receiver waits: the sender decides, unless it is gone.
const PATIENCE: u32 = 2;

type Chunks = BoxStream<'static, Result<Bytes, String>>;

fn request(step: Step) -> TransferRequest {
    TransferRequest { step: Some(step) }
}

/// How far a transfer has come, as its stream tells it to who waits for the answer.
struct Progress {
    at: Mutex<Instant>,
    /// Why the chunks ended early.
    failure: Mutex<Option<String>>,
}

/// Sends `chunks` to a group of a peer.
pub(super) async fn send(
    dialer: Arc<Dialer>,
    to: Peer,
    group: GroupId,
    chunks: Chunks,
    within: Duration,
) -> Result<Bytes, TransportError> {
    let within = within.min(WITHIN_MAX);
    let timed_out = || TransportError::TimedOut { peer: to.clone() };
    let broken = |why| TransportError::Broken { peer: to.clone(), why };
    dialer.metrics.transfers.add(1);
    let dialed = timeout(within, dialer.dial(&to.address, to.node, Use::Transfer)).await;
    let mut connection = dialed
        .map_err(|_| timed_out())?
        .map_err(|error| TransportError::Unreachable {
            peer: to.clone(),
            why: error.to_string(),
        })?;
    let progress = Arc::new(Progress {
        at: Mutex::new(Instant::now()),
        failure: Mutex::new(None),
    });
    let start = TransferStart {
        group: group.0,
        within_ms: u32::try_from(within.as_millis()).unwrap_or(u32::MAX),
    };
    let requests = requests(start, chunks, dialer.clone(), progress.clone());
    let answer = tokio::select! {
        answer = connection.client.transfer(Request::new(requests)) => answer,
        () = stalled(&progress, within) => return Err(timed_out()),
    };
    if let Some(why) = progress.failure.lock().take() {
        return Err(broken(format!("the transfer was given up on this side: {why}")));
    }
    let refused = |why| TransportError::Refused { peer: to.clone(), why };
    match answer {
        Ok(response) => match response.into_inner().result {
            Some(transfer_response::Result::Answer(answer)) => Ok(answer),
            Some(transfer_response::Result::Refusal(why)) => Err(refused(why)),
            None => Err(refused("an answer that this version cannot read".to_owned())),
        },
        Err(status) => Err(broken(message(&status))),
    }
}

/// Returns when `within` has passed since the last progress.
async fn stalled(progress: &Progress, within: Duration) {
    loop {
        let until = *progress.at.lock() + within;
        if until <= Instant::now() {
            return;
        }
        sleep_until(until).await;
    }
}

/// What goes over the wire. Nothing follows a failure of the chunks.
fn requests(
    start: TransferStart,
    chunks: Chunks,
    dialer: Arc<Dialer>,
    progress: Arc<Progress>,
) -> impl Stream<Item = TransferRequest> + Send + 'static {
    let max = dialer.limits.message_bytes_max;
    let chunks = chunks
        .map(Some)
        .chain(stream::iter([None]))
        .scan(false, move |ended, chunk| {
            if *ended {
                return std::future::ready(None);
            }
            *progress.at.lock() = Instant::now();
            let failure = match chunk {
                Some(Ok(chunk)) if chunk.len() <= max => {
                    dialer.metrics.transfer_bytes_sent.add(chunk.len());
                    return std::future::ready(Some(request(Step::Chunk(chunk))));
                }
                Some(Ok(chunk)) => Some(format!("a chunk has {} bytes; at most {max} are sent", chunk.len())),
                Some(Err(why)) => Some(why),
                None => None,
            };
            *ended = true;
            let last = match failure {
                None => Step::End(TransferEnd {}),
                Some(why) => {
                    *progress.failure.lock() = Some(why.clone());
                    Step::Abort(why)
                }
            };
            std::future::ready(Some(request(last)))
        });
    stream::iter([request(Step::Start(start))]).chain(chunks)
}

/// Hands a transfer to the group that it is for. That has a task of its own, which is not ended from outside: the group
/// sees in its chunks that the transfer broke off, and cleans up.
pub(super) async fn receive(
    shared: &Arc<Shared>,
    mut requests: Streaming<TransferRequest>,
) -> Result<TransferResponse, Status> {
    let first = requests.message().await?.and_then(|request| request.step);
    let Some(Step::Start(start)) = first else {
        return Err(Status::invalid_argument(
            "a transfer that does not begin with its start",
        ));
    };
    let receiver = match shared.receiver(start.group) {
        Ok(receiver) => receiver,
        Err(why) => return Ok(response(Err(why))),
    };
    let within = Duration::from_millis(start.within_ms.into()).min(WITHIN_MAX) * PATIENCE;
    let work = receiver.receive_chunks(incoming(shared.clone(), requests, within));
    let result = shared.tasks.spawn(work).await;
    Ok(response(result.unwrap_or_else(|error| {
        Err(format!("the group did not finish: {error}"))
    })))
}

fn response(result: Result<Bytes, String>) -> TransferResponse {
    let result = match result {
        Ok(answer) => transfer_response::Result::Answer(answer),
        Err(why) => transfer_response::Result::Refusal(why),
    };
    TransferResponse { result: Some(result) }
}

/// The chunks; an error is the last item.
fn incoming(shared: Arc<Shared>, requests: Streaming<TransferRequest>, within: Duration) -> Chunks {
    stream::unfold(Some(requests), move |requests| {
        let shared = shared.clone();
        async move {
            let mut requests = requests?;
            let next = tokio::select! {
                () = shared.stop.cancelled() => return Some((Err("this node stops".to_owned()), None)),
                next = timeout(within, requests.message()) => next,
            };
            let error = match next {
                Err(_) => format!("no chunk for {} ms", within.as_millis()),
                Ok(Err(status)) => format!("the transfer broke off: {}", message(&status)),
                Ok(Ok(None)) => "the transfer ended without its last chunk".to_owned(),
                Ok(Ok(Some(TransferRequest { step }))) => match step {
                    Some(Step::Chunk(chunk)) => {
                        shared.dialer.metrics.transfer_bytes_received.add(chunk.len());
                        return Some((Ok(chunk), Some(requests)));
                    }
                    Some(Step::End(TransferEnd {})) => return None,
                    Some(Step::Abort(why)) => format!("the sender gave up: {why}"),
                    Some(Step::Start(_)) | None => "a step of the transfer that this version cannot read".to_owned(),
                },
            };
            Some((Err(error), None))
        }
    })
    .boxed()
}
