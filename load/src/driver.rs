//! What a broker has to be able to do.

use std::error::Error;
use std::future::Future;

use bytes::Bytes;

use crate::stamp::Stamp;

/// Why load cannot go on. What a driver failed with can be had by its type.
pub type LoadError = Box<dyn Error + Send + Sync>;

/// A way to a broker.
pub trait Driver: Send + Sync {
    /// Publishes on a connection of its own.
    type Publisher: Publisher;
    /// Consumes on a connection of its own.
    type Consumer: Consumer;

    /// Connects somebody who publishes such batches.
    fn publisher(&self, batch: &Batch) -> impl Future<Output = Result<Self::Publisher, LoadError>> + Send;

    /// Connects somebody who gets messages of a queue, with at most `in_flight` of them not acknowledged, in batches of about
    /// `batch`.
    fn consumer(
        &self,
        queue: &str,
        in_flight: u32,
        batch: u32,
    ) -> impl Future<Output = Result<Self::Consumer, LoadError>> + Send;
}

/// What is sent at once. All batches of a publisher are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Where it goes.
    pub queue: String,
    /// At least 1.
    pub messages: usize,
    /// Of each message.
    pub payload_bytes: usize,
}

/// Sends batches.
pub trait Publisher: Send + 'static {
    /// Puts a batch on its way, every message of it with this stamp, and waits for nothing.
    ///
    /// # Errors
    /// The connection is gone.
    fn send(&mut self, stamp: Stamp) -> Result<(), LoadError>;

    /// Waits for the answer to the oldest batch that has none. Dropping the future loses no answer.
    fn answered(&mut self) -> impl Future<Output = Result<Answered, LoadError>> + Send;
}

/// What became of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Messages that are as safe as was asked for.
    pub stored: u64,
    /// Why the others were refused, one entry each; a stable name.
    pub refused: Vec<String>,
}

/// Gets messages.
pub trait Consumer: Send + 'static {
    /// Names a message that was delivered.
    type Token: Send;

    /// Waits for messages, or for the news that some were settled.
    fn next(&mut self) -> impl Future<Output = Result<Received<Self::Token>, LoadError>> + Send;

    /// Puts an acknowledgement on its way.
    ///
    /// # Errors
    /// The connection is gone.
    fn ack(&mut self, tokens: Vec<Self::Token>) -> Result<(), LoadError>;
}

/// What a consumer got.
#[derive(Debug)]
pub struct Received<T> {
    /// One for each message.
    pub tokens: Vec<T>,
    /// Of the messages, in the order of their tokens.
    pub payloads: Vec<Bytes>,
    /// Acknowledgements that are done by now, in messages; each is told once.
    pub settled: u64,
    /// Why acknowledgements failed, one entry for each message; a stable name.
    pub not_settled: Vec<String>,
}

impl<T> Default for Received<T> {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            payloads: Vec::new(),
            settled: 0,
            not_settled: Vec::new(),
        }
    }
}
