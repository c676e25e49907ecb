//! Settles messages: gathers what is to be settled while a call is on its way, so that a busy consumer makes a call for many
//! messages and an idle one does not wait for company.
//!
//! There is no task that runs all the time. Whoever comes first makes the call for all who wait, and when it is answered the next one
//! does. So an idle client has nothing in the background, and dropping it leaves nothing behind.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_proto::queue::v1::{self as proto, SettleFailure, SettleFailureReason};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::net::{Caller, Repeat};
use crate::wire::duration;
use crate::{Error, NotSettled, Result};

/// The server takes no more at a time.
const TOKENS_MAX: usize = 1_000;

/// What is to become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Settlement {
    Ack,
    Nack {
        delay: Option<Duration>,
    },
    DeadLetter,
    /// Given back without an attempt.
    Release,
    Extend {
        lease: Duration,
    },
}

/// Clones share what is gathered.
#[derive(Debug, Clone)]
pub(crate) struct Settler {
    caller: Caller,
    shared: Arc<Mutex<HashMap<Settlement, Gathering>>>,
}

/// Of one kind: there while a call is on its way.
#[derive(Debug, Default)]
struct Gathering {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    token: Bytes,
    done: oneshot::Sender<Result<()>>,
}

impl Settler {
    pub(crate) fn new(caller: Caller) -> Self {
        Self {
            caller,
            shared: Arc::default(),
        }
    }

    pub(crate) fn with_caller(&self, caller: Caller) -> Self {
        Self {
            caller,
            shared: self.shared.clone(),
        }
    }

    /// Returns when it is stored.
    pub(crate) async fn settle(&self, token: Bytes, settlement: Settlement) -> Result<()> {
        let (done, answer) = oneshot::channel();
        if self.join(Waiting { token, done }, settlement) {
            // A task of its own: if the future of who came first is dropped, the others are still answered.
            let settler = self.clone();
            tokio::spawn(async move { settler.carry_out(settlement).await });
        }
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// Whether it is the first, for whom there is no call on its way.
    fn join(&self, waiting: Waiting, settlement: Settlement) -> bool {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let first = !shared.contains_key(&settlement);
        shared.entry(settlement).or_default().waiting.push(waiting);
        first
    }

    /// Makes calls until nobody waits.
    async fn carry_out(&self, settlement: Settlement) {
        while let Some(batch) = self.take(settlement) {
            let tokens = batch.iter().map(|waiting| waiting.token.clone()).collect();
            let answer = self.call(settlement, tokens).await;
            let failed: HashMap<Bytes, NotSettled> = match &answer {
                Ok((_, failures)) => failures.iter().cloned().collect(),
                Err(_) => HashMap::new(),
            };
            for Waiting { token, done } in batch {
                let result = match (&answer, failed.get(&token)) {
                    (Err(error), _) => Err(error.clone()),
                    (Ok(_), Some(why)) => Err(Error::NotSettled(*why)),
                    (Ok(_), None) => Ok(()),
                };
                // Who does not wait any more does not want to know.
                let _ = done.send(result);
            }
        }
    }

    fn take(&self, settlement: Settlement) -> Option<Vec<Waiting>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let gathering = shared.get_mut(&settlement)?;
        if gathering.waiting.is_empty() {
            shared.remove(&settlement);
            return None;
        }
        let count = gathering.waiting.len().min(TOKENS_MAX);
        Some(gathering.waiting.drain(..count).collect())
    }

    /// One call; how many were settled, and why others were not.
    pub(crate) async fn call(
        &self,
        settlement: Settlement,
        delivery_tokens: Vec<Bytes>,
    ) -> Result<(u32, Vec<(Bytes, NotSettled)>)> {
        // More than one: what the first has settled without an answer is not there any more for the next.
        let attempts = AtomicUsize::new(0);
        let service = |channel| {
            attempts.fetch_add(1, Ordering::Relaxed);
            QueueServiceClient::new(channel)
        };
        let (count, failures) = match settlement {
            Settlement::Ack => {
                let request = proto::AckRequest {
                    delivery_tokens,
                    message_ids: Vec::new(),
                };
                let make = |channel, request| {
                    let mut service = service(channel);
                    async move { service.ack(request).await }
                };
                let answer = self.caller.call(Repeat::Always, request, make).await?;
                (answer.settled, answer.failures)
            }
            Settlement::Nack { .. } | Settlement::DeadLetter | Settlement::Release => {
                let request = proto::NackRequest {
                    delivery_tokens,
                    message_ids: Vec::new(),
                    delay: match settlement {
                        Settlement::Nack { delay } => delay.map(duration),
                        _ => None,
                    },
                    dead_letter: settlement == Settlement::DeadLetter,
                    release: settlement == Settlement::Release,
                };
                let make = |channel, request| {
                    let mut service = service(channel);
                    async move { service.nack(request).await }
                };
                let answer = self.caller.call(Repeat::Always, request, make).await?;
                (answer.settled, answer.failures)
            }
            Settlement::Extend { lease } => {
                let request = proto::ExtendLeaseRequest {
                    delivery_tokens,
                    lease: Some(duration(lease)),
                };
                let make = |channel, request| {
                    let mut service = service(channel);
                    async move { service.extend_lease(request).await }
                };
                let answer = self.caller.call(Repeat::Always, request, make).await?;
                (answer.extended, answer.failures)
            }
        };
        let failures = failures.into_iter().map(not_settled);
        if attempts.into_inner() == 1 || matches!(settlement, Settlement::Extend { .. }) {
            return Ok((count, failures.collect()));
        }
        let (done, failures): (Vec<_>, Vec<_>) = failures.partition(|(_, why)| *why == NotSettled::NotFound);
        let done = u32::try_from(done.len()).unwrap_or(u32::MAX);
        Ok((count.saturating_add(done), failures))
    }
}

pub(crate) fn not_settled(failure: SettleFailure) -> (Bytes, NotSettled) {
    let why = match failure.reason() {
        SettleFailureReason::Malformed => NotSettled::Malformed,
        SettleFailureReason::NotFound => NotSettled::NotFound,
        SettleFailureReason::LeaseLost => NotSettled::LeaseLost,
        SettleFailureReason::NotSettled => NotSettled::NotStored,
        SettleFailureReason::NotScheduled => NotSettled::NotScheduled,
        SettleFailureReason::Unspecified => NotSettled::Other,
    };
    (failure.token, why)
}
