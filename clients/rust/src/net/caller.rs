//! Makes calls, and repeats them where that is right. Every call of the client goes through here.

use std::sync::Arc;
use std::time::Duration;

use boltq_proto::r#type::v1::Message;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::address::Address;
use super::backoff::Backoff;
use super::connections::Connections;
use super::failure::{Failure, Outcome};
use super::keys::Keys;
use crate::Error;

/// Whether a call whose outcome is not known is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// A second time does no harm.
    Always,
    /// Only if nothing was done.
    IfNotDone,
}

impl Repeat {
    /// With a key it can be published again whatever became of the first time.
    pub(crate) fn of_publish(message: &Message) -> Self {
        match message.idempotency_key.is_empty() {
            true => Self::IfNotDone,
            false => Self::Always,
        }
    }
}

/// What is the same for all calls.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) metadata: MetadataMap,
    pub(crate) timeout: Duration,
    pub(crate) idempotent_publishes: bool,
}

/// Makes calls. Clones are cheap and share connections.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    shared: Arc<Shared>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    connections: Connections,
    settings: Settings,
    keys: Keys,
}

/// Whether to make one more attempt, and when.
enum Next {
    Now,
    After(Duration),
    GiveUp,
}

/// Attempts of one call.
pub(crate) struct Attempts {
    backoff: Backoff,
    /// One that may come at once was made already.
    hurried: usize,
}

impl Attempts {
    pub(crate) fn new() -> Self {
        Self {
            backoff: Backoff::new(),
            hurried: 0,
        }
    }
}

impl Caller {
    pub(crate) fn new(connections: Connections, settings: Settings) -> Self {
        let timeout = settings.timeout;
        let shared = Shared {
            connections,
            keys: Keys::new(settings.idempotent_publishes),
            settings,
        };
        Self {
            shared: Arc::new(shared),
            timeout,
        }
    }

    pub(crate) fn with_timeout(&self, timeout: Duration) -> Self {
        Self {
            shared: self.shared.clone(),
            timeout,
        }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Those that this client makes up, for itself and its clones.
    pub(crate) fn keys(&self) -> &Keys {
        &self.shared.keys
    }

    /// Makes a call with one answer.
    pub(crate) async fn call<M, T, F>(
        &self,
        repeat: Repeat,
        message: M,
        make: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<T, Error>
    where
        M: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.call_waiting(repeat, Duration::ZERO, message, make).await
    }

    /// As [`Caller::call`], for one that the server may answer so much later.
    pub(crate) async fn call_waiting<M, T, F>(
        &self,
        repeat: Repeat,
        wait: Duration,
        message: M,
        make: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<T, Error>
    where
        M: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + self.timeout + wait;
        let mut attempts = Attempts::new();
        // What is known of earlier attempts: one that may have done it makes the outcome of all unknown.
        let mut last: Option<Error> = None;
        let mut unknown = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (address, channel) = self.shared.connections.current()?;
            let mut request = self.request(message.clone());
            request.set_timeout(left);
            let status = match tokio::time::timeout_at(deadline, make(channel, request)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => status,
                Err(_) => return Err(late(last, self.timeout + wait)),
            };
            let mut failure = self.learn(&address, &status);
            unknown |= failure.outcome == Outcome::Unknown;
            if unknown {
                failure.error = failure.error.with_unknown_outcome();
            }
            let again = failure.outcome == Outcome::NotDone || repeat == Repeat::Always;
            // The transport ends calls at their deadline too, with a status of its own.
            if deadline <= Instant::now() && failure.error.reason().is_none() {
                return Err(late(last, self.timeout + wait));
            }
            let next = if again {
                self.next(&failure, &mut attempts)
            } else {
                Next::GiveUp
            };
            match next {
                Next::Now => {}
                Next::After(wait) if Instant::now() + wait < deadline => tokio::time::sleep(wait).await,
                Next::After(_) | Next::GiveUp => return Err(failure.error),
            }
            last = Some(failure.error);
        }
    }

    /// Opens a stream; what it brings is for the caller to look at, and to tell [`Caller::learn`] when it fails. Opening is repeated, as
    /// nothing was sent that could be done twice. Without a deadline it ends only by a failure that is final.
    pub(crate) async fn open<T, F>(
        &self,
        attempts: &mut Attempts,
        deadline: Option<Instant>,
        make: impl Fn(Channel, &Self) -> F,
    ) -> Result<(Address, T), Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        loop {
            let (address, channel) = self.shared.connections.current()?;
            // Servers answer with the head of a stream at once; one that does not is no use.
            let within = deadline.unwrap_or_else(|| Instant::now() + self.timeout);
            let status = match tokio::time::timeout_at(within, make(channel, self)).await {
                Ok(Ok(response)) => return Ok((address, response.into_inner())),
                Ok(Err(status)) => status,
                Err(_) => Status::unavailable("the server does not answer"),
            };
            let failure = self.learn(&address, &status);
            self.wait(&failure, attempts, deadline).await?;
        }
    }

    /// Waits before the next attempt to open a stream that has failed; fails if there is to be none.
    pub(crate) async fn wait(
        &self,
        failure: &Failure,
        attempts: &mut Attempts,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        match self.next(failure, attempts) {
            Next::Now => Ok(()),
            Next::After(wait) if deadline.is_none_or(|deadline| Instant::now() + wait < deadline) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Next::After(_) | Next::GiveUp => Err(failure.error.clone()),
        }
    }

    /// What a failure means, after the connections know of it.
    pub(crate) fn learn(&self, address: &Address, status: &Status) -> Failure {
        let failure = Failure::of(status);
        let connections = &self.shared.connections;
        match &failure.leader {
            Some(leader) if failure.outcome != Outcome::Final => connections.follow(leader),
            _ if failure.elsewhere && failure.outcome != Outcome::Final => connections.leave(address),
            _ => {}
        }
        failure
    }

    /// A message with what goes with every call.
    pub(crate) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.shared.settings.metadata.clone();
        request
    }

    fn next(&self, failure: &Failure, attempts: &mut Attempts) -> Next {
        if failure.outcome == Outcome::Final {
            return Next::GiveUp;
        }
        // Another address is not to wait for what this one did wrong, and neither is a leader that was just named; but who is sent
        // around in a circle waits.
        let unconnected =
            matches!(failure.error, Error::Unreachable(_)) && attempts.hurried + 1 < self.shared.connections.count();
        let named = failure.leader.is_some() && attempts.hurried == 0;
        if unconnected || named {
            attempts.hurried += 1;
            return Next::Now;
        }
        Next::After(attempts.backoff.next(failure.retry_after))
    }
}

impl Attempts {
    /// After a success.
    pub(crate) fn reset(&mut self) {
        self.backoff.reset();
        self.hurried = 0;
    }
}

/// The deadline is over. What happened before says more than that.
fn late(last: Option<Error>, within: Duration) -> Error {
    match last {
        Some(error) if error.is_outcome_unknown() => error,
        Some(error) => Error::Lost(format!("no answer within {within:?}, and before that: {error}")),
        None => Error::Lost(format!("no answer within {within:?}")),
    }
}
