//! The task behind a publisher: opens streams, sends batches, and takes what the server says of each.
//!
//! Invariant: all messages that are not confirmed are in `sent` and, after it, `waiting`, in the order in which they were given; the
//! oldest batch of `sent` is answered by the next response of the present stream. `refused` has what responses said to be sent again, which
//! is older than the rest: at the end of a stream, or while what was sent meanwhile is answered. Nothing more is sent as long as it has any,
//! so that it does not come after what is younger. All of it goes back to the front of `waiting`, when the stream breaks or all is answered.

use std::collections::VecDeque;
use std::future::pending;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::item::Item;
use super::target::Target;
use crate::error::Refusal;
use crate::net::{Address, Attempts, Caller, Failure, KEYS_FULL, Outcome, reason_outcome};
use crate::{Error, MessageId, Result};

/// What the server takes in one request.
const BATCH_MESSAGES_MAX: usize = 1_000;
/// A larger one gains nothing.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Requests that may wait for HTTP/2: what is on its way is bounded by room, not by this.
const REQUESTS_MAX: usize = 4;

pub(super) struct Sender<T> {
    caller: Caller,
    target: T,
    given: mpsc::UnboundedReceiver<Item>,
    waiting: VecDeque<Item>,
    sent: VecDeque<Vec<Item>>,
    refused: Vec<Item>,
    attempts: Attempts,
}

/// One stream.
struct Session<T: Target> {
    address: Address,
    requests: mpsc::Sender<T::Request>,
    responses: Streaming<T::Response>,
}

/// Why a stream is over.
enum End {
    /// Nobody gives anything any more, and all is confirmed.
    Closed,
    Failed(Failure),
    /// The oldest message has no time left.
    Late,
}

impl<T: Target> Sender<T> {
    pub(super) fn new(caller: Caller, target: T, given: mpsc::UnboundedReceiver<Item>) -> Self {
        Self {
            caller,
            target,
            given,
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            refused: Vec::new(),
            attempts: Attempts::new(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            // An idle publisher needs no stream, and opens none again if the last one broke.
            if self.waiting.is_empty() {
                match self.given.recv().await {
                    Some(item) => self.waiting.push_back(item),
                    None => return,
                }
            }
            let deadline = self.waiting.front().map(|item| item.deadline);
            let mut session = match self.open(deadline).await {
                Ok(session) => session,
                Err(error) => {
                    self.fail_waiting(&error);
                    continue;
                }
            };
            let end = self.serve(&mut session).await;
            drop(session.requests);
            match end {
                End::Closed => return,
                End::Late => self.take_back(Outcome::Unknown, &late()),
                End::Failed(failure) => self.recover(&failure).await,
            }
        }
    }

    async fn open(&mut self, deadline: Option<Instant>) -> Result<Session<T>> {
        let opened = self.caller.open(&mut self.attempts, deadline, |channel, caller| {
            let (requests, stream) = mpsc::channel(REQUESTS_MAX);
            let request = caller.request(ReceiverStream::new(stream));
            async move {
                let response = T::open(channel, request).await?;
                Ok(response.map(|responses| (requests, responses)))
            }
        });
        let (address, (requests, responses)) = opened.await?;
        Ok(Session {
            address,
            requests,
            responses,
        })
    }

    /// Sends and receives until the stream is over.
    async fn serve(&mut self, session: &mut Session<T>) -> End {
        let mut closed = false;
        loop {
            if closed && self.waiting.is_empty() && self.sent.is_empty() {
                return End::Closed;
            }
            let oldest = self
                .refused
                .first()
                .or(self.sent.front().and_then(|batch| batch.first()))
                .or(self.waiting.front());
            let deadline = oldest.map(|item| item.deadline);
            let has_batch = !self.waiting.is_empty();
            let may_send = has_batch && self.refused.is_empty();
            tokio::select! {
                biased;
                response = session.responses.message() => {
                    let status = match response {
                        Ok(Some(response)) => match self.answered(response) {
                            None => continue,
                            Some(failure) => return End::Failed(failure),
                        },
                        Ok(None) => Status::unavailable("the server ended the stream"),
                        Err(status) => status,
                    };
                    return End::Failed(self.caller.learn(&session.address, &status).await);
                }
                permit = session.requests.reserve(), if may_send => match permit {
                    Ok(permit) => permit.send(self.next_batch()),
                    // The stream is over; what it ends with comes as a response.
                    Err(_) => match session.responses.message().await {
                        Err(status) => return End::Failed(self.caller.learn(&session.address, &status).await),
                        Ok(Some(response)) => if let Some(failure) = self.answered(response) {
                            return End::Failed(failure);
                        },
                        Ok(None) => {
                            let status = Status::unavailable("the server ended the stream");
                            return End::Failed(self.caller.learn(&session.address, &status).await);
                        }
                    },
                },
                item = self.given.recv(), if !closed && !has_batch => match item {
                    Some(item) => self.waiting.push_back(item),
                    None => closed = true,
                },
                () = at(deadline) => return End::Late,
            }
        }
    }

    /// What is there, up to the limits of a batch.
    fn next_batch(&mut self) -> T::Request {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_MESSAGES_MAX {
            let Some(mut item) = self.waiting.pop_front().or_else(|| self.given.try_recv().ok()) else {
                break;
            };
            bytes += item.bytes;
            if !batch.is_empty() && bytes > BATCH_BYTES_MAX {
                self.waiting.push_front(item);
                break;
            }
            self.caller.keys().reconsider(&mut item.keyed, item.unknown);
            batch.push(item);
        }
        let messages = batch.iter().map(|item: &Item| item.keyed.message.clone());
        let request = self.target.request(messages.collect());
        self.sent.push_back(batch);
        request
    }

    /// Tells of each message of the oldest batch what became of it. Those that are to be sent again are in `refused` then, or in `waiting`
    /// if nothing else is on its way; if they need another stream, this is why.
    fn answered(&mut self, response: T::Response) -> Option<Failure> {
        let Some(batch) = self.sent.pop_front() else {
            let error = Error::Lost("the server answered what was not sent".to_owned());
            return Some(failed(Outcome::Unknown, error));
        };
        self.attempts.reset();
        let answer = T::answered(response);
        let mut failures = answer.failures.into_iter().peekable();
        let mut ids = answer.ids.into_iter();
        let mut failure: Option<Failure> = None;
        for (index, mut item) in batch.into_iter().enumerate() {
            let id = ids.next().unwrap_or_default();
            let Some(why) = failures.next_if(|failure| failure.index as usize == index) else {
                item.finish(Ok(MessageId(id)));
                continue;
            };
            let keys = self.caller.keys();
            if keys.does_without(&mut item.keyed, Some(&why.reason), item.unknown) {
                self.refused.push(item);
                continue;
            }
            let outcome = reason_outcome(&why.reason);
            let error = refused(why.reason, why.message, why.retriable, outcome);
            item.unknown |= outcome == Outcome::Unknown;
            if outcome == Outcome::Final || (outcome == Outcome::Unknown && !item.is_repeatable()) {
                item.finish(Err(error));
                continue;
            }
            failure.get_or_insert_with(|| failed(outcome, error));
            self.refused.push(item);
        }
        if failure.is_none() && self.sent.is_empty() {
            self.wait_again();
        }
        failure
    }

    /// Prepares for another stream.
    async fn recover(&mut self, failure: &Failure) {
        self.take_back(failure.outcome, &failure.error);
        if failure.outcome == Outcome::Final {
            return;
        }
        // Not longer than the oldest has time; what has none left is told when the next stream is opened.
        let deadline = self.waiting.front().map(|item| item.deadline);
        if let Err(error) = self.caller.wait(failure, &mut self.attempts, deadline).await {
            self.fail_waiting(&error);
        }
    }

    /// What was sent on a stream that is over waits again, or has failed.
    fn take_back(&mut self, outcome: Outcome, error: &Error) {
        let now = Instant::now();
        for mut item in std::mem::take(&mut self.sent).into_iter().flatten().rev() {
            // A stream that is refused for good ends with what was refused. Else nothing is known of what was not answered.
            item.unknown |= outcome != Outcome::Final && !matches!(error, Error::WrongServer(_));
            let lost = outcome == Outcome::Final || item.deadline <= now;
            match lost || (item.unknown && !item.is_repeatable()) {
                true => item.finish(Err(error.clone())),
                false => self.waiting.push_front(item),
            }
        }
        self.wait_again();
        self.fail_late(error);
    }

    /// What was refused is to be sent before all that waits.
    fn wait_again(&mut self) {
        for item in std::mem::take(&mut self.refused).into_iter().rev() {
            self.waiting.push_front(item);
        }
    }

    /// No stream could be opened: those fail that have waited too long, or all if there is no use in waiting.
    fn fail_waiting(&mut self, error: &Error) {
        if !error.is_retriable() || self.attempts.gave_up() {
            while let Some(item) = self.waiting.pop_front() {
                item.finish(Err(error.clone()));
            }
            return;
        }
        // The first one is why the attempt has ended: otherwise this would go round for nothing.
        if let Some(item) = self.waiting.pop_front() {
            item.finish(Err(error.clone()));
        }
        self.fail_late(error);
    }

    fn fail_late(&mut self, error: &Error) {
        let now = Instant::now();
        while self.waiting.front().is_some_and(|item| item.deadline <= now) {
            if let Some(item) = self.waiting.pop_front() {
                item.finish(Err(error.clone()));
            }
        }
    }
}

fn late() -> Error {
    Error::Lost("the publish was not confirmed in time".to_owned())
}

fn failed(outcome: Outcome, error: Error) -> Failure {
    Failure {
        retry_after: error.retry_after(),
        error,
        outcome,
        leader: None,
        elsewhere: true,
        from: None,
    }
}

fn refused(reason: String, message: String, retriable: bool, outcome: Outcome) -> Error {
    let code = match reason.as_str() {
        "QUEUE_FULL" | "STORAGE_FULL" | KEYS_FULL => Code::ResourceExhausted,
        _ if outcome != Outcome::Final => Code::Unavailable,
        _ => Code::InvalidArgument,
    };
    Error::Refused(Refusal {
        code,
        reason,
        message,
        metadata: std::collections::BTreeMap::new(),
        outcome_unknown: outcome == Outcome::Unknown,
        retriable,
    })
}

/// Never, if there is no such time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => pending().await,
    }
}
