//! The confirmed stream of publishes: many messages on their way, each confirmed for itself.

mod item;
mod session;
mod target;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::net::Caller;
use crate::{Error, Message, MessageId, Result};
use item::{Item, Room};
use session::Sender;
use target::Target;

pub(crate) use target::{ToQueue, ToTopic};

/// More than a message may have in all.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// How much may be on its way.
#[derive(Debug, Clone)]
pub struct PublisherOptions {
    /// Messages at most that were given and are not confirmed. 10,000 by default.
    pub max_messages: usize,
    /// Bytes of these at most. 16 MiB by default. A message that is larger waits until it is alone.
    pub max_bytes: usize,
    /// Whether messages get an idempotency key if they have none; `None`: as the client says.
    pub idempotent: Option<bool>,
}

impl Default for PublisherOptions {
    fn default() -> Self {
        Self {
            max_messages: 10_000,
            max_bytes: 16 << 20,
            idempotent: None,
        }
    }
}

/// Publishes to one queue or topic, many messages at a time; see [`Queue::publisher`](crate::Queue::publisher) and
/// [`Topic::publisher`](crate::Topic::publisher).
///
/// Messages go in batches of what is there. When the stream breaks, another one is opened and what was not confirmed is sent
/// again; with idempotency keys (the default) nothing is lost or stored twice. Messages without one that may have been stored fail instead, see
/// [`Error::is_outcome_unknown`].
///
/// Messages are stored in the order in which they were given, as long as no stream breaks and none is refused.
///
/// ```no_run
/// # async fn example(client: boltq::Client) -> boltq::Result<()> {
/// use boltq::PublisherOptions;
///
/// let publisher = client.queue("emails").publisher(PublisherOptions::default());
/// let mut confirmations = Vec::new();
/// for number in 0..100_000 {
///     // Waits while too much is on its way.
///     confirmations.push(publisher.publish(format!("{number}")).await?);
/// }
/// for confirmation in confirmations {
///     confirmation.await?;
/// }
/// publisher.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Publisher {
    items: mpsc::UnboundedSender<Item>,
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    options: PublisherOptions,
    caller: Caller,
    sending: JoinHandle<()>,
}

impl Publisher {
    pub(crate) fn new(caller: Caller, target: impl Target, mut options: PublisherOptions) -> Self {
        options.max_messages = options.max_messages.clamp(1, Semaphore::MAX_PERMITS);
        // Permits are taken by 32 bits at a time.
        options.max_bytes = options.max_bytes.clamp(1, u32::MAX as usize);
        let (items, given) = mpsc::unbounded_channel();
        let sending = tokio::spawn(Sender::new(caller.clone(), target, given).run());
        Self {
            items,
            messages: Arc::new(Semaphore::new(options.max_messages)),
            bytes: Arc::new(Semaphore::new(options.max_bytes)),
            options,
            caller,
            sending,
        }
    }

    /// Hands over a message, after waiting until there is room for it. What it answers is to be awaited for the outcome; who drops it does
    /// not learn that, and the message is published all the same.
    ///
    /// # Errors
    /// The message is larger than the server accepts, or the publisher has ended.
    pub async fn publish(&self, message: impl Into<Message>) -> Result<Confirmation> {
        let keyed = self.caller.keys().give(message.into().wire, self.options.idempotent);
        let bytes = size(&keyed.message);
        if bytes > MESSAGE_BYTES_MAX {
            let what = format!("the message has {bytes} bytes; up to {MESSAGE_BYTES_MAX} are allowed");
            return Err(Error::Usage(what));
        }
        let room = self.room(bytes).await?;
        let (outcome, confirmed) = oneshot::channel();
        let item = Item {
            keyed,
            bytes,
            deadline: Instant::now() + self.caller.timeout(),
            outcome,
            unknown: false,
            _room: room,
        };
        self.items.send(item).map_err(|_| Error::Closed)?;
        Ok(Confirmation(confirmed))
    }

    async fn room(&self, bytes: usize) -> Result<Room> {
        let closed = |_| Error::Closed;
        let messages = self.messages.clone().acquire_owned().await.map_err(closed)?;
        // One that is larger than all takes all.
        let share = u32::try_from(bytes.clamp(1, self.options.max_bytes)).unwrap_or(u32::MAX);
        let bytes = self.bytes.clone().acquire_many_owned(share).await.map_err(closed)?;
        Ok(Room {
            _messages: messages,
            _bytes: bytes,
        })
    }

    /// Waits until everything that was given is confirmed or has failed.
    pub async fn flush(&self) {
        let all = u32::try_from(self.options.max_bytes).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.bytes.acquire_many(all).await;
    }

    /// As [`Publisher::flush`], and ends the stream. Who only drops the publisher ends it at once: what was not confirmed then fails with
    /// [`Error::Closed`].
    pub async fn close(self) {
        self.flush().await;
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

/// The outcome of one publish, when it is known: the id of the message.
#[derive(Debug)]
#[must_use = "a publish may have failed"]
pub struct Confirmation(oneshot::Receiver<Result<MessageId>>);

impl Future for Confirmation {
    type Output = Result<MessageId>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|outcome| outcome.unwrap_or(Err(Error::Closed)))
    }
}

/// About what it takes on the wire, and in memory.
fn size(message: &boltq_proto::r#type::v1::Message) -> usize {
    let headers: usize = message
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len() + 8)
        .sum();
    let texts = message.content_type.len() + message.idempotency_key.len() + message.ordering_key.len();
    message.payload.len() + headers + texts + 32
}
