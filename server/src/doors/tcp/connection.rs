//! One connection: reading, answering, writing, closing.

use std::borrow::Cow;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::MessageId;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::command::Command;
use super::frame::{self, HEADER_BYTES, Start};
use super::input::{self, Input, InputError};
use super::reply::{self, Confirm, Refusal};
use super::request::{ClusterJoin, Request, Single};
use super::rights::Rights;
use super::run::{Next, PublishRun, Run};
use super::subscriptions::{self, Pushed, Subscriptions};
use crate::access::{Access, Client};
use crate::ack_level::AckLevel;
use crate::cluster::ClusterError;
use crate::config::ServerConfig;
use crate::service::{
    Clustering, Consumer, Delivery, Handle, JoinRequest, PublishBatch, Published, Queues, ServiceError, SettleError,
    Settlement,
};
use crate::telemetry::{DoorMetrics, ForwardCounts};
use crate::tls::Dialer;

/// Replies gathered before they are written although more requests are waiting.
pub(super) const OUT_BYTES_MAX: usize = 256 << 10;
/// Room for the replies to a handful of requests.
const OUT_BYTES_START: usize = 2 << 10;
/// Messages leased at a time, so that a long run of CONSUMEs does not have all of its messages in memory at once.
const CONSUME_MESSAGES_MAX: usize = 16;

/// What a connection may do, known or not.
struct Limits {
    /// A connection that accepts no bytes for so long is closed.
    idle_write_timeout: Duration,
    /// Whether connections are passed on to the leader.
    forward: bool,
}

/// The binary protocol.
pub struct Door {
    queues: Queues,
    clustering: Clustering,
    access: Arc<Access>,
    dialer: Dialer,
    limits: Limits,
    pub(super) metrics: Arc<DoorMetrics>,
}

impl Door {
    /// In front of these queues.
    pub fn new(
        queues: Queues,
        clustering: Clustering,
        access: Arc<Access>,
        dialer: Dialer,
        config: &ServerConfig,
        metrics: Arc<DoorMetrics>,
    ) -> Self {
        let limits = Limits {
            idle_write_timeout: config.idle_write_timeout,
            forward: config.tcp_forward,
        };
        Self {
            queues,
            clustering,
            access,
            dialer,
            limits,
            metrics,
        }
    }

    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    pub(super) fn idle_write_timeout(&self) -> Duration {
        self.limits.idle_write_timeout
    }

    pub(super) fn forwards(&self) -> &ForwardCounts {
        &self.metrics.forwards
    }

    pub(super) fn is_clustered(&self) -> bool {
        self.clustering.is_enabled()
    }

    /// Whether connections that begin now are for another node.
    pub(super) fn passes_on(&self) -> bool {
        self.limits.forward && self.is_follower()
    }

    /// Whether this node belongs to a cluster and does not lead it, or not yet.
    pub(super) fn is_follower(&self) -> bool {
        self.is_clustered() && !self.queues.is_leading() && !self.clustering.is_removed()
    }

    /// Serves a connection, of which `input` was read already, until it ends, or with the request in progress when
    /// `stop` is cancelled. What it had leased is then available to others.
    pub(super) async fn serve<S>(&self, io: S, input: Input, client: &Client, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut connection = Connection {
            door: self,
            io,
            client,
            out: Vec::new(),
            consumer: self.queues.consumer(),
            subscriptions: None,
            rights: self.access.open().map(Rights::new),
            auth_attempts: 0,
            prefetch: None,
            confirms: None,
        };
        match connection.run(input, stop).await {
            Ok(()) => connection.close().await,
            Err(error) => debug!(peer = ?client.peer(), %error, "connection broke"),
        }
    }
}

pub(super) struct Connection<'d, S> {
    pub(super) door: &'d Door,
    io: S,
    pub(super) client: &'d Client,
    /// Replies that are not written yet.
    pub(super) out: Vec<u8>,
    consumer: Consumer,
    /// `None`: there never was one.
    pub(super) subscriptions: Option<Subscriptions>,
    /// `None`: a key is wanted, and no right one was shown.
    pub(super) rights: Option<Rights>,
    pub(super) auth_attempts: u32,
    prefetch: Option<usize>,
    /// In confirm mode, the number of successful publishes since it was switched on.
    confirms: Option<u64>,
}

/// Why no more requests are answered.
pub(super) struct Closing;

/// What a connection waits for.
enum Event {
    Revoked,
    Read(Result<usize, InputError>),
    Pushed(Pushed),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// Returns when the connection is to be closed in good order.
    async fn run(&mut self, mut input: Input, stop: CancellationToken) -> io::Result<()> {
        let mut stopped = pin!(stop.cancelled());
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
                    () = stopped.as_mut() => return Ok(()),
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
            match Run::next(run.as_mut(), request, &self.door.queues) {
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

    async fn publish(&mut self, run: PublishRun<'_>) {
        let published = self.publish_batch(run.batch).await;
        let failure = published
            .as_ref()
            .err()
            .map_or(Refusal::from(&ServiceError::Stopped), Refusal::from);
        let mut answers = published.unwrap_or_default().into_answers();
        for request in run.requests {
            match request.map(|queue| (queue, answers.next())) {
                Ok((queue, Some(Ok(id)))) => {
                    let confirm = self.next_confirm();
                    reply::published(&mut self.out, id, &queue, confirm);
                }
                Ok((_, Some(Err(error)))) => reply::refusal(&mut self.out, &Refusal::from(&error)),
                Ok((_, None)) => reply::refusal(&mut self.out, &failure),
                Err(refusal) => reply::refusal(&mut self.out, &refusal),
            }
        }
    }

    async fn publish_batch(&self, batch: PublishBatch) -> Result<Published, ServiceError> {
        if batch.is_empty() {
            return Ok(Published::default());
        }
        let admitted = self.door.queues.admit(batch, AckLevel::Quorum).await?;
        self.door.queues.publish_admitted(admitted).await
    }

    pub(super) fn next_confirm(&mut self) -> Option<Confirm> {
        let seq_no = self.confirms.as_mut()?;
        *seq_no += 1;
        Some(Confirm { seq_no: *seq_no })
    }

    async fn settle(&mut self, how: Settlement, ids: &[Cow<'_, str>]) {
        let parsed: Vec<Option<MessageId>> = ids.iter().map(|id| id.parse().ok()).collect();
        let handles: Vec<Handle> = parsed.iter().flatten().map(|id| Handle::Id(*id)).collect();
        let settled = match self.door.queues.settle(how, &handles).await {
            Ok(settled) => settled,
            Err(error) => {
                return ids
                    .iter()
                    .for_each(|_| reply::refusal(&mut self.out, &Refusal::from(&error)));
            }
        };
        let status = if how == Settlement::Ack { "acked" } else { "nacked" };
        let mut settled = settled.into_iter();
        for (id, parsed) in ids.iter().zip(parsed) {
            match parsed.and_then(|_| settled.next()) {
                Some(Ok(())) => reply::status(&mut self.out, status),
                Some(Err(SettleError::NotSettled(error))) => {
                    reply::refusal(&mut self.out, &Refusal::from(&*error));
                }
                Some(Err(_)) | None => reply::not_pending(&mut self.out, id),
            }
        }
    }

    /// Answers `count` CONSUMEs as if they came one after the other.
    async fn consume(&mut self, queue: &str, count: usize) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            let wanted = self
                .prefetch
                .map_or(left, |limit| left.min(limit.saturating_sub(self.consumer.held())));
            if wanted == 0 {
                repeat(left, || reply::error(&mut self.out, "prefetch limit reached"));
                break;
            }
            let wanted = wanted.min(CONSUME_MESSAGES_MAX);
            let taken = self
                .door
                .queues
                .consume(&self.consumer, queue, wanted, None, Duration::ZERO)
                .await;
            match taken {
                Ok(deliveries) if deliveries.is_empty() => {
                    repeat(left, || reply::empty(&mut self.out));
                    break;
                }
                Ok(deliveries) => {
                    left = left.saturating_sub(deliveries.len());
                    self.deliver(queue, &deliveries).await?;
                }
                Err(error) => {
                    repeat(left, || reply::refusal(&mut self.out, &Refusal::from(&error)));
                    break;
                }
            }
        }
        Ok(())
    }

    async fn deliver(&mut self, queue: &str, deliveries: &[Delivery]) -> io::Result<()> {
        for delivery in deliveries {
            if !reply::delivery(&mut self.out, queue, delivery) {
                self.give_back(delivery).await;
            }
            self.flush_if_long().await?;
        }
        Ok(())
    }

    /// A message that does not fit into a frame, as base64 needs a third more: it counts as failed, so that it comes to
    /// rest among the dead letters unless somebody takes it over gRPC before.
    async fn give_back(&mut self, delivery: &Delivery) {
        let how = Settlement::Nack {
            delay: None,
            dead_letter: false,
        };
        if let Err(error) = self.door.queues.settle(how, &[Handle::Token(delivery.token)]).await {
            warn!(id = %delivery.id, %error, "a message that does not fit into a frame stays leased until its timeout");
        }
        let id = delivery.id;
        let text = format!("message {id} does not fit into a frame of this protocol; consume it over gRPC");
        reply::error(&mut self.out, &text);
    }

    async fn answer_alone(&mut self, request: &Single<'_>) -> Option<Closing> {
        let out = &mut self.out;
        match request {
            Single::Ping => reply::status(out, "pong"),
            Single::Stats => match self.door.queues.begin_look(false).await {
                Ok(()) => reply::statistics(out, &self.door.queues.stats()),
                Err(error) => reply::refusal(out, &Refusal::from(&error)),
            },
            Single::ClusterStatus => reply::cluster_status(out, self.door.clustering.status().as_ref()),
            Single::ClusterJoin(_) | Single::ClusterLeave(_) if !self.door.clustering.is_enabled() => {
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

    async fn join(&mut self, join: &ClusterJoin<'_>) {
        let request = JoinRequest {
            name: join.node_id.clone().into_owned(),
            address: join.addr.clone().into_owned(),
            voter: true,
            refresh: false,
        };
        match self.door.clustering.join(request).await {
            Ok(node) => reply::cluster_change(&mut self.out, "joined", &node.name),
            Err(error) => reply::refusal(&mut self.out, &Refusal::from(&error)),
        }
    }

    async fn leave(&mut self, node_id: &str) {
        match self.door.clustering.leave(node_id).await {
            Ok(()) => reply::cluster_change(&mut self.out, "removed", node_id),
            Err(error) => reply::refusal(&mut self.out, &Refusal::from(&error)),
        }
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
            let idle = self.door.limits.idle_write_timeout;
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

    async fn close(self) {
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

fn repeat(count: usize, mut write: impl FnMut()) {
    (0..count).for_each(|_| write());
}
