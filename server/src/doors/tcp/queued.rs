//! Answering what is published to queues, taken from them and settled.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use boltq_core::MessageId;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::warn;

use super::connection::Connection;
use super::reply::{self, Confirm, Refusal};
use super::run::PublishRun;
use crate::ack_level::AckLevel;
use crate::service::{Delivery, Handle, PublishBatch, Published, ServiceError, SettleError, Settlement};

/// Messages leased at a time, so that a long run of CONSUMEs does not have all of its messages in memory at once.
const CONSUME_MESSAGES_MAX: usize = 16;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    pub(super) async fn publish(&mut self, run: PublishRun<'_>) {
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
        let admitted = self.door.queues().admit(batch, AckLevel::Quorum).await?;
        self.door.queues().publish_admitted(admitted).await
    }

    pub(super) fn next_confirm(&mut self) -> Option<Confirm> {
        let seq_no = self.confirms.as_mut()?;
        *seq_no += 1;
        Some(Confirm { seq_no: *seq_no })
    }

    pub(super) async fn settle(&mut self, how: Settlement, ids: &[Cow<'_, str>]) {
        let parsed: Vec<Option<MessageId>> = ids.iter().map(|id| id.parse().ok()).collect();
        let handles: Vec<Handle> = parsed.iter().flatten().map(|id| Handle::Id(*id)).collect();
        let settled = match self.door.queues().settle(how, &handles).await {
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
    pub(super) async fn consume(&mut self, queue: &str, count: usize) -> io::Result<()> {
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
                .queues()
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
        if let Err(error) = self.door.queues().settle(how, &[Handle::Token(delivery.token)]).await {
            warn!(id = %delivery.id, %error, "a message that does not fit into a frame stays leased until its timeout");
        }
        let id = delivery.id;
        let text = format!("message {id} does not fit into a frame of this protocol; consume it over gRPC");
        reply::error(&mut self.out, &text);
    }
}

fn repeat(count: usize, mut write: impl FnMut()) {
    (0..count).for_each(|_| write());
}
