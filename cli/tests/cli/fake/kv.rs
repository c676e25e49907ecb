//! The cache of the fake: `k` has a value of version 7, nothing else has one.

use std::collections::HashMap;

use boltq_proto::kv::v1::kv_service_server::KvService;
use boltq_proto::kv::v1::set_request::Condition;
use boltq_proto::kv::v1::watch_response::Event;
use boltq_proto::kv::v1::*;
use bytes::Bytes;
use tokio_stream::Iter;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::{Answer, Service};

pub(crate) const VERSION: u64 = 7;
/// Pages of keys, one key each.
const KEYS: [&str; 3] = ["a", "b\u{1b}", "k"];

/// A call that changes something, or watches.
#[derive(Debug, PartialEq)]
pub(crate) enum KvAsked {
    Set(SetRequest),
    Delete(DeleteRequest),
    Expire(ExpireRequest),
    Increment(IncrementRequest),
    Watch(WatchRequest),
}

fn entry() -> Entry {
    Entry {
        key: "k".to_owned(),
        value: Bytes::from_static(b"value"),
        version: VERSION,
        created_at: Some(prost_types::Timestamp::default()),
        expires_at: None,
    }
}

fn not_met() -> Status {
    let metadata: HashMap<String, String> = [("version".to_owned(), VERSION.to_string())].into();
    let info = ErrorDetails::with_error_info("CONDITION_NOT_MET", "boltq", metadata);
    let text = format!("condition not met: the value has version {VERSION}");
    Status::with_error_details(Code::FailedPrecondition, text, info)
}

impl Service {
    fn kv_asked(&self, call: KvAsked) {
        self.asked.lock().unwrap().kv.push(call);
    }
}

#[tonic::async_trait]
impl KvService for Service {
    type WatchStream = Iter<std::vec::IntoIter<Result<WatchResponse, Status>>>;

    async fn get(&self, request: Request<GetRequest>) -> Answer<GetResponse> {
        let there = request.into_inner().key == "k";
        Ok(Response::new(GetResponse {
            entry: there.then(entry),
        }))
    }

    async fn set(&self, request: Request<SetRequest>) -> Answer<SetResponse> {
        let request = request.into_inner();
        let refused = request.key == "k" && request.condition == Some(Condition::IfAbsent(true));
        self.kv_asked(KvAsked::Set(request));
        if refused {
            return Err(not_met());
        }
        Ok(Response::new(SetResponse { version: VERSION + 1 }))
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Answer<DeleteResponse> {
        let request = request.into_inner();
        let deleted = request.key == "k";
        self.kv_asked(KvAsked::Delete(request));
        Ok(Response::new(DeleteResponse { deleted }))
    }

    async fn exists(&self, request: Request<ExistsRequest>) -> Answer<ExistsResponse> {
        Ok(Response::new(ExistsResponse {
            exists: request.into_inner().key == "k",
        }))
    }

    async fn keys(&self, request: Request<KeysRequest>) -> Answer<KeysResponse> {
        let request = request.into_inner();
        if request.pattern == "none*" {
            return Ok(Response::new(KeysResponse::default()));
        }
        let at = KEYS.iter().position(|key| *key > request.page_token.as_str()).unwrap();
        let more = at + 1 < KEYS.len();
        Ok(Response::new(KeysResponse {
            keys: vec![KEYS[at].to_owned()],
            next_page_token: if more { KEYS[at].to_owned() } else { String::new() },
        }))
    }

    async fn expire(&self, request: Request<ExpireRequest>) -> Answer<ExpireResponse> {
        let request = request.into_inner();
        let found = request.key == "k";
        self.kv_asked(KvAsked::Expire(request));
        Ok(Response::new(ExpireResponse { found }))
    }

    async fn increment(&self, request: Request<IncrementRequest>) -> Answer<IncrementResponse> {
        let request = request.into_inner();
        let value = request.delta.unwrap();
        self.kv_asked(KvAsked::Increment(request));
        Ok(Response::new(IncrementResponse {
            value,
            version: VERSION + 1,
        }))
    }

    async fn flush(&self, _: Request<FlushRequest>) -> Answer<FlushResponse> {
        Ok(Response::new(FlushResponse { removed: 3 }))
    }

    async fn get_stats(&self, _: Request<GetStatsRequest>) -> Answer<GetStatsResponse> {
        Ok(Response::new(GetStatsResponse {
            enabled: true,
            keys: 1,
            bytes: 6,
            sets: 12,
            ..GetStatsResponse::default()
        }))
    }

    /// Some events, and then the stream ends.
    async fn watch(&self, request: Request<WatchRequest>) -> Answer<Self::WatchStream> {
        self.kv_asked(KvAsked::Watch(request.into_inner()));
        let key = "gone\n".to_owned();
        let events = [
            Event::Put(entry()),
            Event::Ready(Ready { version: VERSION }),
            Event::Removed(Removed { key, version: 8 }),
            Event::Flushed(Flushed { version: 9 }),
        ];
        let responses = events.map(|event| Ok(WatchResponse { event: Some(event) }));
        Ok(Response::new(tokio_stream::iter(
            responses.into_iter().collect::<Vec<_>>(),
        )))
    }
}
