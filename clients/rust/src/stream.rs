//! Streams that go on over broken connections: subscriptions, and watches of the cache.
//!
//! One stream of gRPC is open at a time, and read only as far as the application reads: what it does not take waits in the window of the
//! connection and then on the server. When it breaks, the next one is opened, as the rules for repeating say; what is to be known of the
//! gap the [`Source`] tells.

use std::collections::VecDeque;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::net::{Address, Attempts, Caller, Failure, Outcome};
use crate::{Error, Result};

/// A stream that is being opened, and what has to be kept as long as it is open.
pub(crate) type Opening<R, K> = BoxFuture<'static, std::result::Result<Response<(Streaming<R>, K)>, Status>>;

/// What is read.
pub(crate) trait Source: Send + Sync + 'static {
    /// Of the server.
    type Response: Send + 'static;
    /// For the application.
    type Item: Send + 'static;
    /// What has to be kept as long as the stream is open.
    type Kept: Send + 'static;

    /// Makes the call; `again` if it has worked before.
    fn open(&self, again: bool, channel: Channel, caller: &Caller) -> Opening<Self::Response, Self::Kept>;

    /// Adds what is in a response.
    fn read(&mut self, response: Self::Response, items: &mut VecDeque<Self::Item>);

    /// What the application is told when a stream has broken.
    fn broken(&self) -> Option<Self::Item> {
        None
    }

    /// What the application is told when another stream is open in place of one that broke.
    fn reopened(&self) -> Option<Self::Item> {
        None
    }

    /// Whether it goes on after a failure that is final for others.
    fn survives(&self, _failure: &Error) -> bool {
        false
    }
}

/// The items of a source.
pub(crate) struct Items<S: Source> {
    caller: Caller,
    source: S,
    attempts: Attempts,
    session: Option<Session<S>>,
    ready: VecDeque<S::Item>,
    /// Why the last stream broke, until another one is to be opened.
    failure: Option<Failure>,
    /// Whether a stream was open before.
    worked: bool,
    over: bool,
}

/// One stream.
struct Session<S: Source> {
    address: Address,
    responses: Streaming<S::Response>,
    _kept: S::Kept,
}

impl<S: Source> Items<S> {
    pub(crate) fn new(caller: Caller, source: S, attempts: Attempts) -> Self {
        Self {
            caller,
            source,
            attempts,
            session: None,
            ready: VecDeque::new(),
            failure: None,
            worked: false,
            over: false,
        }
    }

    /// Opens the stream within a time, if it is not to be opened when it is first read.
    pub(crate) async fn opened(mut self, deadline: Instant) -> Result<Self> {
        self.open(Some(deadline)).await?;
        Ok(self)
    }

    /// As a stream, which ends after a failure.
    pub(crate) fn boxed(self) -> BoxStream<'static, Result<S::Item>> {
        stream::unfold(self, |mut items| async move {
            let next = items.next().await?;
            Some((next, items))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Result<S::Item>> {
        if self.over {
            return None;
        }
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(item));
            }
            if let Err(error) = self.read().await {
                self.over = true;
                return Some(Err(error));
            }
        }
    }

    /// Takes one response, or opens the stream if there is none.
    async fn read(&mut self) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return self.caller.wait(&failure, &mut self.attempts, None).await;
        }
        let Some(session) = &mut self.session else {
            return self.open(None).await;
        };
        let status = match session.responses.message().await {
            Ok(Some(response)) => {
                self.attempts.reset();
                self.source.read(response, &mut self.ready);
                return Ok(());
            }
            Ok(None) => Status::unavailable("the server ended the stream"),
            Err(status) => status,
        };
        let mut failure = self.caller.learn(&session.address, &status).await;
        self.session = None;
        if failure.outcome == Outcome::Final && self.source.survives(&failure.error) {
            failure.outcome = Outcome::NotDone;
        }
        self.failure = Some(failure);
        self.ready.extend(self.source.broken());
        Ok(())
    }

    async fn open(&mut self, deadline: Option<Instant>) -> Result<()> {
        let (source, again) = (&self.source, self.worked);
        let make = |channel, caller: &Caller| source.open(again, channel, caller);
        let (address, (responses, kept)) = self.caller.open(&mut self.attempts, deadline, make).await?;
        self.session = Some(Session {
            address,
            responses,
            _kept: kept,
        });
        if again {
            self.ready.extend(self.source.reopened());
        }
        self.worked = true;
        Ok(())
    }
}
