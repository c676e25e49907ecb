//! `/cache/…`: the key-value cache.
//!
//! Checks go in this order: method, cache enabled, body, key, operation. Times to live are milliseconds.

mod value;

use std::borrow::Cow;
use std::ops::ControlFlow;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use boltq_kv::Entry;
use boltq_kv::command::{Condition, TimeToLive};
use serde::de::MapAccess;
use serde_json::value::RawValue;

use self::value::{Shown, stored};
use super::query::Parameters;
use super::refusal::{Refusal, members, required, whole};
use super::room::{Client, hold};
use super::router::{AdminDoor, json};
use super::streamed::{Gone, PART_BYTES, streamed};
use crate::doors::body::{Members, integer, text};
use crate::doors::json::{put_number, put_string};
use crate::service::{Kv, KvError, KvStats, VALUE_BYTES_MAX};

/// The largest value fits, even if all of its characters are escaped.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Of `/cache/entries`.
const ENTRIES_MAX: u64 = 100;

type Answer = Result<Response, Refusal>;

impl From<KvError> for Refusal {
    fn from(error: KvError) -> Self {
        let status = match &error {
            KvError::Service(error) => return Self::of_service(error),
            KvError::Off => StatusCode::SERVICE_UNAVAILABLE,
            KvError::Key { .. } | KvError::ValueTooLarge { .. } | KvError::Increment(_) => StatusCode::BAD_REQUEST,
            KvError::ConditionNotMet { .. } => StatusCode::CONFLICT,
        };
        Self::Error(status, error.to_string())
    }
}

impl From<Gone> for Refusal {
    fn from(gone: Gone) -> Self {
        Self::Error(StatusCode::INTERNAL_SERVER_ERROR, gone.to_string())
    }
}

#[derive(Default)]
struct Change<'a> {
    key: Cow<'a, str>,
    value: Option<&'a str>,
    /// Of `/cache/set` and `/cache/expire`.
    ttl: i64,
    /// Of `/cache/incr`.
    delta: i64,
}

impl<'de> Members<'de> for Change<'de> {
    const NAMES: &'static [&'static str] = &["key", "value", "ttl", "delta"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "key" => self.key = text(map)?,
            "value" => self.value = map.next_value::<Option<&'de RawValue>>()?.map(RawValue::get),
            "ttl" => self.ttl = integer(map)?,
            _ => self.delta = integer(map)?,
        }
        Ok(())
    }
}

pub(super) async fn get(State(door): State<AdminDoor>, client: Client, query: Parameters) -> Answer {
    let key = query.text("key").to_owned();
    key_of(&door, &key)?;
    let (entry, hold) = door.kv.get(&key, |bytes| hold(client.as_ref(), bytes)).await?;
    let Some(entry) = entry else {
        return Err(Refusal::Error(StatusCode::NOT_FOUND, "key not found".to_owned()));
    };
    streamed(|sink| async move {
        let _hold = hold;
        let (key, entry, mut part) = (&key, &entry, Vec::new());
        let shown = Shown {
            key,
            entry,
            size: false,
        };
        shown.write(&mut part, &sink).await?;
        Ok(sink.send(&mut part).await?)
    })
    .await
}

pub(super) async fn set(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = body_of(&door, body).await?;
    let change: Change<'_> = members(&body)?;
    key_of(&door, &change.key)?;
    let value = stored(change.value)?;
    let live = match u64::try_from(change.ttl) {
        Err(_) => TimeToLive::Unlimited,
        Ok(0) => door.kv.default_ttl(),
        Ok(millis) => TimeToLive::from_millis(millis),
    };
    let set = door.kv.set(&change.key, value.as_bytes(), live, Condition::Any).await;
    set?;
    Ok(answer(&change.key, br#"{"status":"ok","key":"#, b"}"))
}

pub(super) async fn delete(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = body_of(&door, body).await?;
    let change: Change<'_> = members(&body)?;
    key_of(&door, &change.key)?;
    let deleted = door.kv.delete(&change.key, Condition::Any).await?;
    Ok(json(
        StatusCode::OK,
        format!(r#"{{"status":"ok","deleted":{deleted}}}"#),
    ))
}

pub(super) async fn keys(State(door): State<AdminDoor>, query: Parameters) -> Answer {
    let pattern = query.text("pattern").to_owned();
    streamed(|sink| async move {
        let mut part = br#"{"keys":["#.to_vec();
        let (mut count, mut after) = (0, None);
        loop {
            let visit = |key: &str, _: &Entry| {
                if count > 0 {
                    part.push(b',');
                }
                put_string(&mut part, key);
                count += 1;
                until(part.len() >= PART_BYTES)
            };
            after = door.kv.visit(&pattern, after, visit).await?;
            if after.is_none() {
                break;
            }
            sink.send(&mut part).await?;
        }
        part.extend_from_slice(br#"],"count":"#);
        put_number(&mut part, count);
        part.push(b'}');
        Ok(sink.send(&mut part).await?)
    })
    .await
}

pub(super) async fn exists(State(door): State<AdminDoor>, query: Parameters) -> Answer {
    let key = query.text("key").to_owned();
    key_of(&door, &key)?;
    let exists = door.kv.exists(&key).await?;
    let tail = format!(r#","exists":{exists}}}"#);
    Ok(answer(&key, br#"{"key":"#, tail.as_bytes()))
}

pub(super) async fn expire(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = body_of(&door, body).await?;
    let change: Change<'_> = members(&body)?;
    key_of(&door, &change.key)?;
    let live = TimeToLive::from_millis(u64::try_from(change.ttl).unwrap_or(0));
    let found = door.kv.expire(&change.key, live).await?;
    let tail = format!(r#","found":{found}}}"#);
    Ok(answer(&change.key, br#"{"status":"ok","key":"#, tail.as_bytes()))
}

pub(super) async fn increment(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = body_of(&door, body).await?;
    let change: Change<'_> = members(&body)?;
    key_of(&door, &change.key)?;
    let by = if change.delta == 0 { 1 } else { change.delta };
    let (value, _) = door.kv.increment(&change.key, by).await?;
    let tail = format!(r#","value":{value}}}"#);
    Ok(answer(&change.key, br#"{"key":"#, tail.as_bytes()))
}

pub(super) async fn flush(State(door): State<AdminDoor>) -> Answer {
    let removed = door.kv.flush().await?;
    Ok(json(
        StatusCode::OK,
        format!(r#"{{"status":"flushed","removed":{removed}}}"#),
    ))
}

pub(super) async fn stats(State(door): State<AdminDoor>) -> Response {
    let mut body = Vec::new();
    put_stats(&mut body, door.kv.stats());
    json(StatusCode::OK, body)
}

pub(super) async fn entries(State(door): State<AdminDoor>, client: Client, query: Parameters) -> Answer {
    let (pattern, search) = (query.text("pattern").to_owned(), query.text("search").to_lowercase());
    streamed(|sink| async move {
        let mut part = br#"{"entries":["#.to_vec();
        let (mut total, mut after, mut more) = (0, None, true);
        // One at a time: a hundred large values are more than one answer may hold.
        let room = hold(client.as_ref(), VALUE_BYTES_MAX).await;
        while more && total < ENTRIES_MAX {
            let found;
            (found, after) = next_entry(&door.kv, &pattern, &search, after).await?;
            more = after.is_some();
            let Some((key, entry)) = &found else { continue };
            if total > 0 {
                part.push(b',');
            }
            total += 1;
            let shown = Shown { key, entry, size: true };
            shown.write(&mut part, &sink).await?;
        }
        drop(room);
        if more {
            let count = |key: &str, _: &Entry| {
                total += u64::from(contains(key, &search));
                ControlFlow::Continue(())
            };
            door.kv.visit(&pattern, after, count).await?;
        }
        part.extend_from_slice(br#"],"total":"#);
        put_number(&mut part, total);
        part.push(b'}');
        Ok(sink.send(&mut part).await?)
    })
    .await
}

/// The first entry after `after`, and after what to go on, if there is more.
async fn next_entry(
    kv: &Kv,
    pattern: &str,
    search: &str,
    after: Option<String>,
) -> Result<(Option<(String, Entry)>, Option<String>), KvError> {
    let mut found = None;
    let visit = |key: &str, entry: &Entry| {
        if contains(key, search) {
            found = Some((key.to_owned(), entry.clone()));
        }
        until(found.is_some())
    };
    let after = kv.visit(pattern, after, visit).await?;
    Ok((found, after))
}

/// Without regard to case; `search` is in lower case.
fn contains(key: &str, search: &str) -> bool {
    search.is_empty() || key.to_lowercase().contains(search)
}

fn until(enough: bool) -> ControlFlow<()> {
    if enough {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// As `/cache/stats` answers, and others that show it.
pub(super) fn put_stats(body: &mut Vec<u8>, stats: Option<KvStats>) {
    let Some(stats) = stats else {
        body.extend_from_slice(br#"{"enabled":false}"#);
        return;
    };
    let members = [
        (r#"{"enabled":true,"stats":{"key_count":"#, stats.keys),
        (r#","memory_used":"#, stats.bytes),
        (r#","hits":"#, stats.hits),
        (r#","misses":"#, stats.misses),
        (r#","sets":"#, stats.totals.sets),
        (r#","deletes":"#, stats.totals.deletes),
        (r#","expired":"#, stats.totals.expired),
        (r#","evicted":"#, stats.totals.evicted),
    ];
    for (name, value) in members {
        body.extend_from_slice(name.as_bytes());
        put_number(body, value);
    }
    body.extend_from_slice(b"}}");
}

fn key_of(door: &AdminDoor, key: &str) -> Result<(), Refusal> {
    if door.kv.is_enabled() {
        required(key, "key is required")
    } else {
        Err(KvError::Off.into())
    }
}

async fn body_of(door: &AdminDoor, body: Body) -> Result<axum::body::Bytes, Refusal> {
    if door.kv.is_enabled() {
        whole(body, BODY_BYTES_MAX).await
    } else {
        Err(KvError::Off.into())
    }
}

/// `head`, the key, `tail`.
fn answer(key: &str, head: &[u8], tail: &[u8]) -> Response {
    let mut body = head.to_vec();
    put_string(&mut body, key);
    body.extend_from_slice(tail);
    json(StatusCode::OK, body)
}
