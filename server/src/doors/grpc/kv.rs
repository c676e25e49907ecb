//! `boltq.kv.v1.KvService`.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use boltq_kv::command::{Condition, TimeToLive};
use boltq_kv::{Entry, IncrementError};
use boltq_proto::kv::v1::kv_service_server::KvService;
use boltq_proto::kv::v1::set_request::Condition as ConditionProto;
use boltq_proto::kv::v1::watch_response::Event;
use boltq_proto::kv::v1::{self as proto};
use tokio::sync::mpsc;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::convert;
use super::error::{DOMAIN, invalid};
use super::queue::{held, reader};
use super::subscribe::{Queued, Sending};
use crate::doors::intake::{Hold, Reader, StreamRoom};
use crate::service::{KEY_BYTES_MAX, Kv, KvError, KvEvent, KvWatch, ServiceError, WatchEnd};

/// The longest duration that protobuf knows, some ten thousand years.
const TTL_MAX: Duration = Duration::from_secs(315_576_000_000);
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1_000;
/// Changes that may wait for the socket.
const EVENTS_MAX: usize = 16;
/// What an entry has beside its value at most.
const ENTRY_BYTES: usize = KEY_BYTES_MAX + 128;

pub(super) struct KvDoor {
    kv: Kv,
}

impl KvDoor {
    pub(super) fn new(kv: Kv) -> Self {
        Self { kv }
    }
}

impl From<KvError> for Status {
    fn from(error: KvError) -> Self {
        let mut metadata = HashMap::new();
        let (code, reason) = match &error {
            KvError::Service(error) => return error.clone().into(),
            KvError::Off => (Code::FailedPrecondition, "CACHE_NOT_ENABLED"),
            KvError::Key { .. } => (Code::InvalidArgument, "INVALID_KEY"),
            KvError::ValueTooLarge { .. } => (Code::InvalidArgument, "VALUE_TOO_LARGE"),
            KvError::ConditionNotMet { version } => {
                metadata.extend(version.map(|version| ("version".to_owned(), version.to_string())));
                (Code::FailedPrecondition, "CONDITION_NOT_MET")
            }
            KvError::Increment(IncrementError::NotAnInteger(_)) => (Code::FailedPrecondition, "NOT_AN_INTEGER"),
            KvError::Increment(IncrementError::Overflow { .. }) => (Code::OutOfRange, "INCREMENT_OVERFLOW"),
        };
        let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
        Self::with_error_details(code, error.to_string(), details)
    }
}

fn watch_ended(end: WatchEnd) -> Status {
    match end {
        WatchEnd::TooSlow => {
            let details = ErrorDetails::with_error_info("WATCH_TOO_SLOW", DOMAIN, HashMap::new());
            let text = "the watcher was too far behind; begin again with `initial`";
            Status::with_error_details(Code::ResourceExhausted, text, details)
        }
        WatchEnd::Interrupted => ServiceError::Stopped.into(),
        WatchEnd::Removed => ServiceError::Removed.into(),
    }
}

/// Milliseconds, rounded up.
fn millis(ttl: &prost_types::Duration) -> Result<u64, Status> {
    let nanos = i128::from(ttl.seconds) * 1_000_000_000 + i128::from(ttl.nanos);
    let nanos = u128::try_from(nanos).map_err(|_| invalid("ttl is negative"))?;
    if nanos > TTL_MAX.as_nanos() {
        return Err(invalid(format!(
            "ttl is {} s; at most {} s are allowed, and 0 is for ever",
            ttl.seconds,
            TTL_MAX.as_secs()
        )));
    }
    Ok(u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

fn entry_proto(key: String, entry: Entry) -> proto::Entry {
    let timestamp = |time: boltq_core::Millis| convert::timestamp_ns(time.0.saturating_mul(1_000_000));
    proto::Entry {
        key,
        value: entry.value,
        version: entry.version,
        created_at: Some(timestamp(entry.created)),
        expires_at: entry.expires.map(timestamp),
    }
}

fn condition(condition: Option<ConditionProto>) -> Result<Condition, Status> {
    match condition {
        None => Ok(Condition::Any),
        Some(ConditionProto::IfAbsent(true)) => Ok(Condition::Absent),
        Some(ConditionProto::IfPresent(true)) => Ok(Condition::Present),
        Some(ConditionProto::IfVersion(version)) => Ok(Condition::Version(version)),
        Some(ConditionProto::IfAbsent(false) | ConditionProto::IfPresent(false)) => {
            Err(invalid("a condition is true, or left out"))
        }
    }
}

#[tonic::async_trait]
impl KvService for KvDoor {
    async fn get(&self, request: Request<proto::GetRequest>) -> Result<Response<proto::GetResponse>, Status> {
        let reader = reader(&request);
        let key = request.into_inner().key;
        let room = |bytes| hold(reader.as_ref(), bytes + ENTRY_BYTES, None);
        let (entry, hold) = self.kv.get(&key, room).await?;
        let entry = entry.map(|entry| entry_proto(key, entry));
        Ok(held(proto::GetResponse { entry }, hold))
    }

    async fn set(&self, request: Request<proto::SetRequest>) -> Result<Response<proto::SetResponse>, Status> {
        let request = request.into_inner();
        let live = match &request.ttl {
            None => self.kv.default_ttl(),
            Some(ttl) => TimeToLive::from_millis(millis(ttl)?),
        };
        let condition = condition(request.condition)?;
        let version = self.kv.set(&request.key, &request.value, live, condition).await?;
        Ok(Response::new(proto::SetResponse { version }))
    }

    async fn delete(&self, request: Request<proto::DeleteRequest>) -> Result<Response<proto::DeleteResponse>, Status> {
        let request = request.into_inner();
        let condition = request.if_version.map_or(Condition::Any, Condition::Version);
        let deleted = self.kv.delete(&request.key, condition).await?;
        Ok(Response::new(proto::DeleteResponse { deleted }))
    }

    async fn exists(&self, request: Request<proto::ExistsRequest>) -> Result<Response<proto::ExistsResponse>, Status> {
        let exists = self.kv.exists(&request.into_inner().key).await?;
        Ok(Response::new(proto::ExistsResponse { exists }))
    }

    async fn keys(&self, request: Request<proto::KeysRequest>) -> Result<Response<proto::KeysResponse>, Status> {
        let reader = reader(&request);
        let request = request.into_inner();
        let max = convert::count(request.page_size, "page_size", PAGE_DEFAULT, PAGE_MAX)?;
        let hold = hold(reader.as_ref(), max * (KEY_BYTES_MAX + 8), None).await;
        let after = Some(request.page_token).filter(|token| !token.is_empty());
        let mut keys = Vec::new();
        let visit = |key: &str, _: &Entry| {
            keys.push(key.to_owned());
            if keys.len() < max {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let next = self.kv.visit(&request.pattern, after, visit).await?;
        let next_page_token = next.unwrap_or_default();
        Ok(held(proto::KeysResponse { keys, next_page_token }, hold))
    }

    async fn expire(&self, request: Request<proto::ExpireRequest>) -> Result<Response<proto::ExpireResponse>, Status> {
        let request = request.into_inner();
        let live = match &request.ttl {
            // In which way ever it is negative.
            Some(ttl) if ttl.seconds >= 0 && ttl.nanos >= 0 => millis(ttl)?,
            _ => 0,
        };
        let found = self.kv.expire(&request.key, TimeToLive::from_millis(live)).await?;
        Ok(Response::new(proto::ExpireResponse { found }))
    }

    async fn increment(
        &self,
        request: Request<proto::IncrementRequest>,
    ) -> Result<Response<proto::IncrementResponse>, Status> {
        let request = request.into_inner();
        let (value, version) = self.kv.increment(&request.key, request.delta.unwrap_or(1)).await?;
        Ok(Response::new(proto::IncrementResponse { value, version }))
    }

    async fn flush(&self, _request: Request<proto::FlushRequest>) -> Result<Response<proto::FlushResponse>, Status> {
        let removed = self.kv.flush().await?;
        Ok(Response::new(proto::FlushResponse { removed }))
    }

    async fn get_stats(
        &self,
        _request: Request<proto::GetStatsRequest>,
    ) -> Result<Response<proto::GetStatsResponse>, Status> {
        let stats = self.kv.stats();
        let enabled = stats.is_some();
        let stats = stats.unwrap_or_default();
        Ok(Response::new(proto::GetStatsResponse {
            enabled,
            keys: stats.keys,
            bytes: stats.bytes,
            hits: stats.hits,
            misses: stats.misses,
            sets: stats.totals.sets,
            deletes: stats.totals.deletes,
            expired: stats.totals.expired,
            evicted: stats.totals.evicted,
        }))
    }

    type WatchStream = Sending<proto::WatchResponse>;

    async fn watch(&self, request: Request<proto::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let reader = reader(&request);
        let request = request.into_inner();
        let watch = self.kv.watch(request.pattern, request.initial)?;
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = report(watch, reader, &events) => ended,
                () = events.closed() => return,
            };
            // A client that is gone needs no status.
            let _ = events.send((Err(ended), None)).await;
        });
        Ok(Response::new(Sending::new(receiver)))
    }
}

/// Waits for room for an answer of so many bytes.
async fn hold(reader: Option<&Arc<Reader>>, bytes: usize, stream: Option<&StreamRoom>) -> Option<Hold> {
    match reader {
        Some(reader) => Some(reader.hold(bytes, stream).await),
        None => None,
    }
}

/// Until there is nothing more to hear; returns why.
async fn report(
    mut watch: KvWatch,
    reader: Option<Arc<Reader>>,
    events: &mpsc::Sender<Queued<proto::WatchResponse>>,
) -> Status {
    let stream = StreamRoom::new();
    loop {
        // A place in the channel first: what is found can then be sent at once.
        let Ok(permit) = events.reserve().await else {
            return Status::cancelled("the client is gone");
        };
        let (event, hold) = match watch.next().await {
            Ok(KvEvent::Put(key, version)) => {
                let Some(bytes) = watch.bytes(&key, version) else {
                    continue;
                };
                let hold = hold(reader.as_ref(), bytes + ENTRY_BYTES, Some(&stream)).await;
                // Whatever took its place is reported by itself.
                let Some(entry) = watch.entry(&key, version) else {
                    continue;
                };
                (Event::Put(entry_proto(key.to_string(), entry)), hold)
            }
            Ok(KvEvent::Removed(key, version)) => {
                let key = key.to_string();
                (Event::Removed(proto::Removed { key, version }), None)
            }
            Ok(KvEvent::Flushed(version)) => (Event::Flushed(proto::Flushed { version }), None),
            Ok(KvEvent::Ready(version)) => (Event::Ready(proto::Ready { version }), None),
            Err(end) => return watch_ended(end),
        };
        let response = proto::WatchResponse { event: Some(event) };
        permit.send((Ok(response), hold));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_rounded_up_and_say_what_is_wrong_with_them() {
        let read = |seconds, nanos| {
            let read = millis(&prost_types::Duration { seconds, nanos });
            read.map_err(|status| status.message().to_owned())
        };
        assert_eq!((read(0, 1), read(1, 1_000_001)), (Ok(1), Ok(1_002)));
        // More than nanoseconds of 64 bits.
        let longest = 315_576_000_000;
        assert_eq!(read(longest, 0), Ok(longest.unsigned_abs() * 1_000));
        assert_eq!(read(-1, 0), Err("ttl is negative".to_owned()));
        for seconds in [longest + 1, i64::MAX] {
            let why = format!("ttl is {seconds} s; at most {longest} s are allowed, and 0 is for ever");
            assert_eq!(read(seconds, 0), Err(why));
        }
    }
}
