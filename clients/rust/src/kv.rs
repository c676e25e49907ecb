//! The key-value cache.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use boltq_proto::kv::v1 as proto;
use boltq_proto::kv::v1::kv_service_client::KvServiceClient;
use boltq_proto::kv::v1::watch_response::Event;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use tonic::transport::Channel;

use crate::net::{Attempts, Caller, Repeat};
use crate::stream::{Items, Opening, Source};
use crate::wire::{duration, from_timestamp};
use crate::{ANSWER_BYTES_MAX, Client, Error, Result};

const PAGE_SIZE: u32 = 1_000;

/// The cache.
#[derive(Debug, Clone)]
pub struct Kv {
    client: Client,
}

/// A value and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// Of its last change; each change has a higher one than all before.
    pub version: u64,
    /// When it was set.
    pub created_at: Option<SystemTime>,
    /// From then on there is no value. `None`: it stays.
    pub expires_at: Option<SystemTime>,
}

/// What has to be so for a set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Condition {
    /// Anything.
    #[default]
    None,
    /// There is no value.
    Absent,
    /// There is one.
    Present,
    /// There is one of this version.
    Version(u64),
}

/// What happened to keys.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// The key has this value now.
    Put(Entry),
    /// The key has no value any more.
    Removed {
        /// The key.
        key: String,
        /// Higher than that of the value that was removed.
        version: u64,
    },
    /// What was there has been reported.
    Ready {
        /// Changes after this version are reported from here on.
        version: u64,
    },
    /// No key has a value any more.
    Flushed {
        /// Higher than that of any value before.
        version: u64,
    },
    /// The watch broke, and changes may have been missed. Everything that is there is reported again, up to the next
    /// [`WatchEvent::Ready`]; what is not among it is gone.
    Restarted,
}

impl Kv {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let request = proto::GetRequest { key: key.to_owned() };
        let make = |channel, request| async move { service(channel).get(request).await };
        let answer = self.client.caller().call(Repeat::Always, request, make).await?;
        Ok(answer.entry.map(Entry::from))
    }

    /// Sets a key, and answers with the version of the value.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set(&self, key: &str, value: impl Into<Bytes>) -> Result<u64> {
        self.set_if(key, value, None, Condition::None).await
    }

    /// Sets a key for so long; `Duration::ZERO` is for ever, `None` as the server says. With a condition it is not repeated
    /// when it may have been done.
    ///
    /// # Errors
    /// `CONDITION_NOT_MET`, with the `version` that there is as [`Error::metadata`]; others see
    /// [`Error`].
    pub async fn set_if(
        &self,
        key: &str,
        value: impl Into<Bytes>,
        ttl: Option<Duration>,
        condition: Condition,
    ) -> Result<u64> {
        let wire = match condition {
            Condition::None => None,
            Condition::Absent => Some(proto::set_request::Condition::IfAbsent(true)),
            Condition::Present => Some(proto::set_request::Condition::IfPresent(true)),
            Condition::Version(version) => Some(proto::set_request::Condition::IfVersion(version)),
        };
        let repeat = if wire.is_none() {
            Repeat::Always
        } else {
            Repeat::IfNotDone
        };
        let request = proto::SetRequest {
            key: key.to_owned(),
            value: value.into(),
            ttl: ttl.map(duration),
            condition: wire,
        };
        let make = |channel, request| async move { service(channel).set(request).await };
        Ok(self.client.caller().call(repeat, request, make).await?.version)
    }

    /// Deletes a key, and answers whether it had a value.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete(&self, key: &str) -> Result<bool> {
        self.remove(key, None).await
    }

    /// Deletes a key if its value has this version. It is not repeated when it may have been done.
    ///
    /// # Errors
    /// `CONDITION_NOT_MET`; others see [`Error`].
    pub async fn delete_if_version(&self, key: &str, version: u64) -> Result<bool> {
        self.remove(key, Some(version)).await
    }

    async fn remove(&self, key: &str, if_version: Option<u64>) -> Result<bool> {
        let repeat = if if_version.is_none() {
            Repeat::Always
        } else {
            Repeat::IfNotDone
        };
        let request = proto::DeleteRequest {
            key: key.to_owned(),
            if_version,
        };
        let make = |channel, request| async move { service(channel).delete(request).await };
        Ok(self.client.caller().call(repeat, request, make).await?.deleted)
    }

    /// Whether a key has a value.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn exists(&self, key: &str) -> Result<bool> {
        let request = proto::ExistsRequest { key: key.to_owned() };
        let make = |channel, request| async move { service(channel).exists(request).await };
        Ok(self.client.caller().call(Repeat::Always, request, make).await?.exists)
    }

    /// All keys of a pattern, in byte order: `*` all, `p*`, `*s`, `*m*`, or one key.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn keys(&self, pattern: &str) -> Result<Vec<String>> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = proto::KeysRequest {
                pattern: pattern.to_owned(),
                page_size: PAGE_SIZE,
                page_token,
            };
            let make = |channel, request| async move { service(channel).keys(request).await };
            let answer = self.client.caller().call(Repeat::Always, request, make).await?;
            all.extend(answer.keys);
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// From now on the value of a key lives so long, `None` for ever. Answers whether it has one.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn expire(&self, key: &str, ttl: Option<Duration>) -> Result<bool> {
        let request = proto::ExpireRequest {
            key: key.to_owned(),
            ttl: ttl.map(duration),
        };
        let make = |channel, request| async move { service(channel).expire(request).await };
        Ok(self.client.caller().call(Repeat::Always, request, make).await?.found)
    }

    /// Adds to the number that is the value of a key, and answers with the sum. It is not repeated when it may have been done.
    ///
    /// # Errors
    /// `NOT_AN_INTEGER`, `INCREMENT_OVERFLOW`; others see [`Error`], and
    /// [`Error::is_outcome_unknown`].
    pub async fn increment(&self, key: &str, delta: i64) -> Result<i64> {
        self.increment_versioned(key, delta).await.map(|(value, _)| value)
    }

    /// As [`Kv::increment`], with the version of the value.
    ///
    /// # Errors
    /// As there.
    pub async fn increment_versioned(&self, key: &str, delta: i64) -> Result<(i64, u64)> {
        let request = proto::IncrementRequest {
            key: key.to_owned(),
            delta: Some(delta),
        };
        let make = |channel, request| async move { service(channel).increment(request).await };
        let answer = self.client.caller().call(Repeat::IfNotDone, request, make).await?;
        Ok((answer.value, answer.version))
    }

    /// Removes everything, and answers how many keys that were.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn flush(&self) -> Result<u64> {
        let make = |channel, request| async move { service(channel).flush(request).await };
        let answer = self.client.caller().call(Repeat::Always, proto::FlushRequest {}, make);
        Ok(answer.await?.removed)
    }

    /// Changes as they are made; with `initial` it begins with what is there. Changes after this has returned are reported.
    ///
    /// When the connection breaks, or this client is too slow for it, the watch begins anew by itself, with [`WatchEvent::Restarted`] and
    /// everything that is there.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn watch(&self, pattern: &str, initial: bool) -> Result<Watch> {
        let caller = self.client.caller();
        let deadline = tokio::time::Instant::now() + caller.timeout();
        let changes = Changes {
            pattern: pattern.to_owned(),
            initial,
        };
        let items = Items::new(caller.clone(), changes, Attempts::new());
        let events = items.opened(deadline).await?.boxed();
        Ok(Watch { events })
    }
}

/// Changes of keys: a [`Stream`] that ends after a failure that is final.
pub struct Watch {
    events: BoxStream<'static, Result<WatchEvent>>,
}

impl Watch {
    /// The next change; `None` after a failure.
    ///
    /// # Errors
    /// The watch cannot go on.
    pub async fn next(&mut self) -> Option<Result<WatchEvent>> {
        self.events.next().await
    }
}

impl Stream for Watch {
    type Item = Result<WatchEvent>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_next_unpin(context)
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Changes of the keys of a pattern.
struct Changes {
    pattern: String,
    initial: bool,
}

impl Source for Changes {
    type Response = proto::WatchResponse;
    type Item = WatchEvent;
    type Kept = ();

    fn open(&self, again: bool, channel: Channel, caller: &Caller) -> Opening<Self::Response, ()> {
        let request = caller.request(proto::WatchRequest {
            pattern: self.pattern.clone(),
            // What has changed in the gap cannot be told, so everything is.
            initial: self.initial || again,
        });
        Box::pin(async move {
            let response = service(channel).watch(request).await?;
            Ok(response.map(|responses| (responses, ())))
        })
    }

    fn read(&mut self, response: proto::WatchResponse, items: &mut VecDeque<WatchEvent>) {
        // An event that is not there is one of a newer server.
        items.extend(response.event.map(WatchEvent::from));
    }

    fn reopened(&self) -> Option<WatchEvent> {
        Some(WatchEvent::Restarted)
    }

    fn survives(&self, failure: &Error) -> bool {
        failure.reason() == Some("WATCH_TOO_SLOW")
    }
}

impl From<Event> for WatchEvent {
    fn from(event: Event) -> Self {
        match event {
            Event::Put(entry) => Self::Put(entry.into()),
            Event::Removed(removed) => Self::Removed {
                key: removed.key,
                version: removed.version,
            },
            Event::Ready(ready) => Self::Ready { version: ready.version },
            Event::Flushed(flushed) => Self::Flushed {
                version: flushed.version,
            },
        }
    }
}

impl From<proto::Entry> for Entry {
    fn from(wire: proto::Entry) -> Self {
        Self {
            key: wire.key,
            value: wire.value,
            version: wire.version,
            created_at: from_timestamp(wire.created_at),
            expires_at: from_timestamp(wire.expires_at),
        }
    }
}

fn service(channel: Channel) -> KvServiceClient<Channel> {
    KvServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}
