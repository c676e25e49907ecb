//! What operators do with queues: settings, purges, dead letters, messages that are not due.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use boltq_proto::queue::v1 as proto;
use bytes::Bytes;
use tokio::time::Instant;
use tonic::Streaming;

use super::{Queue, QueueSettings, service};
use crate::net::{Attempts, Failure, Repeat};
use crate::settler::not_settled;
use crate::wire::{duration, from_timestamp};
use crate::{Client, Error, MessageId, NotSettled, Result};

/// The most that one page may have.
const PAGE_SIZE: u32 = 1_000;

/// A message that is not due yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheduled {
    /// Names it.
    pub id: MessageId,
    /// When it is due.
    pub deliver_at: Option<SystemTime>,
    /// 0 to 9.
    pub priority: i32,
}

impl Queue {
    /// Creates the queue with settings of its own; `false` if it was there with the same ones. Nobody has to.
    ///
    /// # Errors
    /// `QUEUE_EXISTS` if it has others; otherwise see [`Error`].
    pub async fn create(&self, settings: QueueSettings) -> Result<bool> {
        let request = proto::CreateQueueRequest {
            queue: self.name.clone(),
            settings: Some(settings.into()),
        };
        let make = |channel, request| async move { service(channel).create_queue(request).await };
        let answer = self.caller().call(Repeat::Always, request, make).await?;
        Ok(answer.created)
    }

    /// Changes settings: those that `fields` names, as the protocol does (`max_retry`); one that is named and unset in `settings` is left
    /// to the server again. No names: those that are set in `settings`. Answers with what the queue has now.
    ///
    /// # Errors
    /// `QUEUE_NOT_FOUND`; others see [`Error`].
    pub async fn update(&self, settings: QueueSettings, fields: &[&str]) -> Result<QueueSettings> {
        let paths: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        let request = proto::UpdateQueueRequest {
            queue: self.name.clone(),
            settings: Some(settings.into()),
            update_mask: (!paths.is_empty()).then_some(prost_types::FieldMask { paths }),
        };
        let make = |channel, request| async move { service(channel).update_queue(request).await };
        let answer = self.caller().call(Repeat::Always, request, make).await?;
        Ok(answer.queue.and_then(|queue| queue.settings).unwrap_or_default().into())
    }

    /// Stops deliveries. Publishes and settlements go on.
    ///
    /// # Errors
    /// As [`Queue::update`].
    pub async fn pause(&self) -> Result<()> {
        let settings = QueueSettings {
            paused: true,
            ..QueueSettings::default()
        };
        self.update(settings, &["paused"]).await.map(|_| ())
    }

    /// Goes on with deliveries.
    ///
    /// # Errors
    /// As [`Queue::update`].
    pub async fn resume(&self) -> Result<()> {
        self.update(QueueSettings::default(), &["paused"]).await.map(|_| ())
    }

    /// Deletes the queue with everything in it, and answers how many messages that were.
    ///
    /// Who repeats it, as the client does after a broken connection, can be told `QUEUE_NOT_FOUND` though the first call has done it.
    ///
    /// # Errors
    /// `QUEUE_NOT_FOUND`, `QUEUE_NOT_EMPTY`, `QUEUE_IS_BACKLOG`; others see [`Error`].
    pub async fn delete(&self, if_empty: bool) -> Result<u64> {
        let request = proto::DeleteQueueRequest {
            queue: self.name.clone(),
            if_empty,
        };
        let make = |channel, request| async move { service(channel).delete_queue(request).await };
        let answer = self.caller().call(Repeat::Always, request, make).await?;
        Ok(answer.deleted_messages)
    }

    /// The queue as it is now.
    ///
    /// # Errors
    /// `QUEUE_NOT_FOUND`; others see [`Error`].
    pub async fn get(&self) -> Result<proto::Queue> {
        let request = proto::GetQueueRequest {
            queue: self.name.clone(),
            linearizable: true,
        };
        let make = |channel, request| async move { service(channel).get_queue(request).await };
        let answer = self.caller().call(Repeat::Always, request, make).await?;
        Ok(answer.queue.unwrap_or_default())
    }

    /// Removes what is ready, and answers how many messages that were.
    ///
    /// # Errors
    /// `QUEUE_NOT_FOUND`; others see [`Error`].
    pub async fn purge(&self) -> Result<u64> {
        let request = proto::PurgeQueueRequest {
            queue: self.name.clone(),
        };
        let make = |channel, request| async move { service(channel).purge_queue(request).await };
        Ok(self.caller().call(Repeat::Always, request, make).await?.purged)
    }

    /// Removes what is ready in the dead-letter queue of this queue.
    ///
    /// # Errors
    /// `DEAD_LETTERS_NOT_FOUND`; others see [`Error`].
    pub async fn purge_dead_letters(&self) -> Result<u64> {
        let request = proto::PurgeDeadLettersRequest {
            queue: self.name.clone(),
        };
        let make = |channel, request| async move { service(channel).purge_dead_letters(request).await };
        Ok(self.caller().call(Repeat::Always, request, make).await?.purged)
    }

    /// Sends dead letters back to the queue, the oldest first: those with all of `headers`, `max_messages` at most (0: all). Answers how
    /// many that were. It is not repeated when it breaks; what was sent back until then stays so.
    ///
    /// # Errors
    /// `DEAD_LETTERS_NOT_FOUND`; others see [`Error`].
    pub async fn redrive(&self, headers: BTreeMap<String, String>, max_messages: u64) -> Result<u64> {
        let request = proto::RedriveDeadLettersRequest {
            queue: self.name.clone(),
            headers,
            max_messages,
            max_per_second: 0,
        };
        let deadline = Instant::now() + self.caller().timeout();
        let mut attempts = Attempts::new();
        let opened = self
            .caller()
            .open(&mut attempts, Some(deadline), |channel, caller| {
                let request = caller.request(request.clone());
                async move { service(channel).redrive_dead_letters(request).await }
            })
            .await;
        let (_, mut answers): (_, Streaming<proto::RedriveDeadLettersResponse>) = opened?;
        let mut redriven = 0;
        loop {
            match answers.message().await {
                Ok(Some(answer)) => redriven = answer.redriven,
                Ok(None) => return Ok(redriven),
                Err(status) => return Err(Failure::of(&status).error),
            }
        }
    }

    /// All messages that are not due yet, in the order in which they will be.
    ///
    /// # Errors
    /// `QUEUE_NOT_FOUND`; others see [`Error`].
    pub async fn scheduled(&self) -> Result<Vec<Scheduled>> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = proto::ListScheduledRequest {
                queue: self.name.clone(),
                page_size: PAGE_SIZE,
                page_token,
            };
            let make = |channel, request| async move { service(channel).list_scheduled(request).await };
            let answer = self.caller().call(Repeat::Always, request, make).await?;
            all.extend(answer.messages.into_iter().map(|message| Scheduled {
                id: MessageId(message.message_id),
                deliver_at: from_timestamp(message.deliver_at),
                priority: message.priority,
            }));
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// Removes messages that are not due yet, 1,000 at most: how many, and why others stay.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cancel(&self, ids: &[MessageId]) -> Result<(u32, Vec<(Bytes, NotSettled)>)> {
        let request = proto::CancelScheduledRequest {
            message_ids: ids.iter().map(|id| id.0.clone()).collect(),
        };
        let make = |channel, request| async move { service(channel).cancel_scheduled(request).await };
        let answer = self.caller().call(Repeat::Always, request, make).await?;
        let failures = answer.failures.into_iter().map(not_settled).collect();
        Ok((answer.cancelled, failures))
    }

    /// Gives a message that is not due yet another due time: so long from now.
    ///
    /// # Errors
    /// `MESSAGE_NOT_FOUND`, `MESSAGE_NOT_SCHEDULED`; others see [`Error`].
    pub async fn reschedule(&self, id: &MessageId, delay: Duration) -> Result<()> {
        let request = proto::RescheduleRequest {
            message_id: id.0.clone(),
            due: Some(proto::reschedule_request::Due::Delay(duration(delay))),
        };
        let make = |channel, request| async move { service(channel).reschedule(request).await };
        self.caller().call(Repeat::Always, request, make).await.map(|_| ())
    }
}

impl Client {
    /// All queues whose names start with `prefix`, by name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn queues(&self, prefix: &str) -> Result<Vec<proto::Queue>> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = proto::ListQueuesRequest {
                page_size: PAGE_SIZE,
                page_token,
                prefix: prefix.to_owned(),
                linearizable: true,
            };
            let make = |channel, request| async move { service(channel).list_queues(request).await };
            let answer = self.caller().call(Repeat::Always, request, make).await?;
            all.extend(answer.queues);
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }
}

impl TryFrom<&[u8]> for MessageId {
    type Error = Error;

    fn try_from(bytes: &[u8]) -> Result<Self> {
        match bytes.len() {
            16 => Ok(Self(Bytes::copy_from_slice(bytes))),
            other => Err(Error::Usage(format!("an id has 16 bytes, and this has {other}"))),
        }
    }
}
