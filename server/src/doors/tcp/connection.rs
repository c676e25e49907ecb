//! One connection: reading, answering, writing, closing.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::command::Command;
use super::door::Door;
use super::frame::{self, HEADER_BYTES, Start};
use super::input::{self, Input, InputError};
use super::reply::{self, Refusal};
use super::request::{Request, Single};
use super::rights::Rights;
use super::run::{Next, Run};
use super::subscriptions::{self, Pushed, Subscriptions};
use crate::access::Client;
use crate::cluster::ClusterError;
use crate::seldom::Seldom;
use crate::service::Consumer;

/// Replies gathered before they are written although more requests are waiting.
pub(super) const OUT_BYTES_MAX: usize = 256 << 10;
/// Room for the replies to a handful of requests.
const OUT_BYTES_START: usize = 2 << 10;

pub(super) struct Connection<'d, S> {
    pub(super) door: &'d Door,
    io: S,
    pub(super) client: &'d Client,
    /// Replies that are not written yet.
    pub(super) out: Vec<u8>,
    pub(super) consumer: Consumer,
    /// `None`: there never was one.
    pub(super) subscriptions: Option<Subscriptions>,
    /// `None`: a key is wanted, and no right one was shown.
    pub(super) rights: Option<Rights>,
    pub(super) auth_attempts: u32,
    pub(super) prefetch: Option<usize>,
    /// In confirm mode, the number of successful publishes since it was switched on.
    pub(super) confirms: Option<u64>,
}

/// Why no more requests are answered.
pub(super) struct Closing;

/// What a connection waits for.
enum Event {
    Revoked,
    Read(Result<usize, InputError>),
    Pushed(Pushed),
}

impl<'d, S: AsyncRead + AsyncWrite + Unpin> Connection<'d, S> {
    pub(super) fn new(door: &'d Door, io: S, client: &'d Client) -> Self {
        Self {
            door,
            io,
            client,
            out: Vec::new(),
            consumer: door.queues().consumer(),
            subscriptions: None,
            rights: door.access().open().map(Rights::new),
            auth_attempts: 0,
            prefetch: None,
            confirms: None,
        }
    }

    /// Returns when the connection is to be closed in good order.
    pub(super) async fn run(&mut self, mut input: Input, stop: CancellationToken) -> io::Result<()> {
        let mut stopped = Seldom::new(stop.cancelled());
        loop {
            self.out.reserve(OUT_BYTES_START);
            let (used, closing) = self.answer(input.bytes()).await?;
            input.consume(used);
            self.flush().await?;
            // An idle connection holds no buffer.
            self.out = Vec::new();
            if let Some(Closing) = closing {
                return Ok(());
            }
            let read = loop {
                // In turns: neither requests nor pushes keep the others from coming.
                let event = tokio::select! {
                    () = stopped.happened() => return Ok(()),
                    () = Rights::revoked(self.rights.as_mut()) => Event::Revoked,
                    read = input.fill(&mut self.io) => Event::Read(read),
                    pushed = subscriptions::next(self.subscriptions.as_mut()) => Event::Pushed(pushed),
                };
                match event {
                    Event::Revoked => return self.refuse_revoked().await,
                    Event::Read(read) => break read,
                    Event::Pushed(pushed) => {
                        if let Some(Closing) = self.push(pushed).await? {
                            return Ok(());
                        }
                        self.out = Vec::new();
                    }
                }
            };
            match read {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(InputError::Io(error)) => return Err(error),
                Err(InputError::Refused(refusal)) => {
                    // What is left of the frame may come or not, so that this cannot go on behind it.
                    debug!(peer = ?self.client.peer(), %refusal, "closing a connection in the middle of a frame");
                    reply::error(&mut self.out, &refusal.to_string());
                    return self.flush().await;
                }
            }
        }
    }

    /// Answers all whole frames, and returns how many bytes they have.
    async fn answer(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<Closing>)> {
        let mut run = None;
        let mut used = 0;
        let mut closing = None;
        if self.is_revoked() {
            self.refuse_revoked().await?;
            return Ok((0, Some(Closing)));
        }
        while let Start::Frame { code, body_bytes, body } = frame::start(&bytes[used..]) {
            let command = Command::of(code);
            if let Err(end) = self.admit(command, body_bytes) {
                closing = Some(end);
                break;
            }
            let Some(body) = body else { break };
            used += HEADER_BYTES + body_bytes;
            let request = match self.allow(code) {
                Ok(()) => Request::read(command, body),
                Err(denied) => Request::refused(denied.to_string()),
            };
            match Run::next(run.as_mut(), request, self.door.queues()) {
                Next::Joined => {}
                Next::Run(next) => self.finish(run.replace(next)).await?,
                Next::Alone(request) => {
                    self.finish(run.take()).await?;
                    closing = self.answer_alone(&request).await;
                    self.flush_if_long().await?;
                }
            }
            if closing.is_some() {
                break;
            }
        }
        self.finish(run).await?;
        Ok((used, closing))
    }

    async fn finish(&mut self, run: Option<Run<'_>>) -> io::Result<()> {
        match run {
            None => return Ok(()),
            Some(Run::Publish(run)) => self.publish(run).await,
            Some(Run::Routed(run)) => self.publish_routed(run).await,
            Some(Run::Settle { how, ids }) => self.settle(how, &ids).await,
            Some(Run::Consume { queue, count }) => self.consume(&queue, count).await?,
        }
        self.flush_if_long().await
    }

    async fn answer_alone(&mut self, request: &Single<'_>) -> Option<Closing> {
        let out = &mut self.out;
        match request {
            Single::Ping => reply::status(out, "pong"),
            Single::Stats => match self.door.queues().begin_look(false).await {
                Ok(()) => reply::statistics(out, &self.door.queues().stats()),
                Err(error) => reply::refusal(out, &Refusal::from(&error)),
            },
            Single::ClusterStatus => reply::cluster_status(out, self.door.clustering().status().as_ref()),
            Single::ClusterJoin(_) | Single::ClusterLeave(_) if !self.door.clustering().is_enabled() => {
                reply::refusal(out, &Refusal::from(&ClusterError::NotEnabled));
            }
            Single::ClusterJoin(Err(text)) | Single::ClusterLeave(Err(text)) => reply::error(out, text),
            Single::ClusterJoin(Ok(join)) => self.join(join).await,
            Single::ClusterLeave(Ok(node_id)) => self.leave(node_id).await,
            Single::Exchange(change) => self.change_exchange(change).await,
            Single::Subscribe(subscribe) => self.subscribe(subscribe).await,
            Single::Refused(text) => reply::error(out, text),
            Single::Prefetch(limit) => {
                self.prefetch = *limit;
                reply::status(out, "ok");
            }
            Single::ConfirmSelect => {
                self.confirms.get_or_insert(0);
                reply::status(out, "ok");
            }
            Single::Auth(shown) => return self.authenticate(shown.as_deref()),
        }
        None
    }

    pub(super) async fn flush_if_long(&mut self) -> io::Result<()> {
        if self.out.len() < OUT_BYTES_MAX {
            return Ok(());
        }
        self.flush().await
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let mut left = self.out.as_slice();
        while !left.is_empty() {
            let idle = self.door.idle_write_timeout();
            let Ok(written) = timeout(idle, self.io.write(left)).await else {
                warn!(peer = ?self.client.peer(), ?idle, "closing a connection that accepts no bytes");
                return Err(io::ErrorKind::TimedOut.into());
            };
            left = match written? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => &left[written..],
            };
        }
        self.out.clear();
        self.io.flush().await
    }

    pub(super) async fn close(self) {
        let Self {
            mut io,
            consumer,
            subscriptions,
            ..
        } = self;
        // Others may have them now, not when the client has let go.
        drop((consumer, subscriptions));
        input::linger(&mut io).await;
    }
}
