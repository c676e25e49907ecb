//! Makes calls, and repeats them where that is right. Every call of the client goes through here.

use std::sync::Arc;
use std::time::Duration;

use boltq_proto::r#type::v1::Message;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use super::address::Address;
use super::backoff::Backoff;
use super::connections::Connections;
use super::failure::{Below, Failure, Outcome};
use super::keys::Keys;
use super::strangers::{http_only, stranger_at};
use super::unreached::Unreached;
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
    GiveUp(Error),
}

/// Attempts of one call.
pub(crate) struct Attempts {
    backoff: Backoff,
    /// One that may come at once was made already.
    hurried: usize,
    unreached: Unreached,
    /// Whether it waits for ever for a server if none has ever answered.
    patient: bool,
    /// No server has ever answered, and it is no use to wait for one.
    gave_up: bool,
}

impl Attempts {
    pub(crate) fn new() -> Self {
        Self {
            backoff: Backoff::new(),
            hurried: 0,
            unreached: Unreached::default(),
            patient: false,
            gave_up: false,
        }
    }

    /// For what waits for a server for ever.
    pub(crate) fn patient() -> Self {
        Self {
            patient: true,
            ..Self::new()
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
                Ok(Ok(response)) => {
                    self.shared.connections.answered();
                    return Ok(response.into_inner());
                }
                Ok(Err(status)) => status,
                Err(_) => return Err(late(last, self.timeout + wait)),
            };
            let mut failure = self.learn(&address, &status).await;
            unknown |= failure.outcome == Outcome::Unknown;
            if unknown {
                failure.error = failure.error.with_unknown_outcome();
            }
            let again = failure.outcome == Outcome::NotDone || repeat == Repeat::Always;
            // The transport ends calls at their deadline too, with a status of its own.
            let told = failure.error.reason().is_some() || matches!(failure.error, Error::WrongServer(_));
            if deadline <= Instant::now() && !told {
                return Err(late(last, self.timeout + wait));
            }
            let next = if again {
                self.next(&failure, &mut attempts)
            } else {
                Next::GiveUp(failure.error.clone())
            };
            match next {
                Next::Now => {}
                Next::After(wait) if Instant::now() + wait < deadline => tokio::time::sleep(wait).await,
                Next::After(_) => return Err(failure.error),
                Next::GiveUp(error) if unknown => return Err(error.with_unknown_outcome()),
                Next::GiveUp(error) => return Err(error),
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
                Ok(Ok(response)) => {
                    self.shared.connections.answered();
                    return Ok((address, response.into_inner()));
                }
                Ok(Err(status)) => status,
                Err(_) => Status::unavailable("the server does not answer"),
            };
            let failure = self.learn(&address, &status).await;
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
            Next::After(_) => Err(failure.error.clone()),
            Next::GiveUp(error) => Err(error),
        }
    }

    /// What a failure means, after the connections know of it.
    pub(crate) async fn learn(&self, address: &Address, status: &Status) -> Failure {
        let mut failure = Failure::of(status);
        let connections = &self.shared.connections;
        if failure.error.reason().is_some() {
            connections.answered();
        }
        if !connections.has_answered()
            && let Some(explained) = self.explained(address, status, &failure).await
        {
            failure = explained;
        }
        failure.error = failure.error.named(&address.authority());
        failure.from = Some(address.clone());
        match &failure.leader {
            Some(leader) if failure.outcome != Outcome::Final => connections.follow(leader),
            _ if failure.elsewhere && failure.outcome != Outcome::Final => connections.leave(address),
            _ => {}
        }
        failure
    }

    /// What is probably wrong with an address at which no server has ever answered.
    async fn explained(&self, address: &Address, status: &Status, failure: &Failure) -> Option<Failure> {
        if status.code() == Code::Unimplemented {
            let said = status.message();
            let name = address.authority();
            let text = format!(
                "{name} does not know this call: it is no server of BoltQ, or one of an older version ({said})"
            );
            return Some(Failure::of(&Status::unimplemented(text)));
        }
        let connections = &self.shared.connections;
        let (secure, within) = (connections.is_secure(), connections.connect_timeout());
        let stranger = match Below::of(status) {
            _ if failure.outcome == Outcome::Final => None,
            Below::Absent => None,
            Below::Http1 => Some(http_only(address)),
            Below::Unclear => stranger_at(address, secure, within).await,
        };
        stranger.map(Failure::at_wrong_server)
    }

    /// A message with what goes with every call.
    pub(crate) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.shared.settings.metadata.clone();
        request
    }

    fn next(&self, failure: &Failure, attempts: &mut Attempts) -> Next {
        if failure.outcome == Outcome::Final {
            return Next::GiveUp(failure.error.clone());
        }
        let connections = &self.shared.connections;
        if let Some(from) = &failure.from
            && !connections.has_answered()
        {
            let limit = (!attempts.patient).then(|| connections.connect_timeout());
            let verdict = attempts
                .unreached
                .note(connections.configured(), from, &failure.error, limit);
            if let Some(error) = verdict {
                attempts.gave_up = true;
                return Next::GiveUp(error);
            }
        }
        // Another address is not to wait for what this one did wrong, and neither is a leader that was just named; but who is sent
        // around in a circle waits.
        let unconnected = matches!(failure.error, Error::Unreachable(_) | Error::WrongServer(_))
            && attempts.hurried + 1 < connections.configured().len();
        let named = failure.leader.is_some() && attempts.hurried == 0;
        if unconnected || named {
            attempts.hurried += 1;
            return Next::Now;
        }
        let pause = attempts.backoff.next(failure.retry_after);
        Next::After(attempts.unreached.bound(pause))
    }
}

impl Attempts {
    /// Whether an attempt has failed because no server has ever answered, so that others would fail as well. Says so once.
    pub(crate) fn gave_up(&mut self) -> bool {
        std::mem::take(&mut self.gave_up)
    }

    /// After a success.
    pub(crate) fn reset(&mut self) {
        self.backoff.reset();
        self.hurried = 0;
        self.unreached.reset();
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
