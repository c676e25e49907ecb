//! `/cache/…`: the key-value cache.
//!
//! Checks go in this order: method, cache enabled, body, key, operation. Times to live are milliseconds.
//!
//! A value may be any JSON. A string is kept as its characters, anything else as its text. What is read is JSON if it can be,
//! and a string otherwise; so the string `"7"` comes back as the number 7.

use std::borrow::Cow;
use std::ops::ControlFlow;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use boltq_kv::Entry;
use boltq_kv::command::{Condition, TimeToLive};
use serde::Deserialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;

use super::refusal::{Refusal, members, required, whole};
use super::router::{AdminDoor, json};
use crate::clock;
use crate::doors::body::{Members, integer, text};
use crate::doors::json::{put_number, put_string};
use crate::service::{KvError, KvStats};

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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    key: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Listed {
    pattern: String,
    search: String,
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

pub(super) async fn get(State(door): State<AdminDoor>, Query(named): Query<Named>) -> Answer {
    key_of(&door, &named.key)?;
    let Some(entry) = door.kv.get(&named.key).await? else {
        return Err(Refusal::Error(StatusCode::NOT_FOUND, "key not found".to_owned()));
    };
    let mut body = Vec::new();
    put_entry(&mut body, &named.key, &entry, false);
    Ok(json(StatusCode::OK, body))
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

pub(super) async fn keys(State(door): State<AdminDoor>, Query(listed): Query<Listed>) -> Answer {
    let mut body = br#"{"keys":["#.to_vec();
    let mut count = 0;
    let visit = |key: &str, _: &Entry| {
        if count > 0 {
            body.push(b',');
        }
        put_string(&mut body, key);
        count += 1;
        ControlFlow::Continue(())
    };
    door.kv.visit(&listed.pattern, None, visit).await?;
    body.extend_from_slice(br#"],"count":"#);
    put_number(&mut body, count);
    body.push(b'}');
    Ok(json(StatusCode::OK, body))
}

pub(super) async fn exists(State(door): State<AdminDoor>, Query(named): Query<Named>) -> Answer {
    key_of(&door, &named.key)?;
    let exists = door.kv.exists(&named.key).await?;
    let tail = format!(r#","exists":{exists}}}"#);
    Ok(answer(&named.key, br#"{"key":"#, tail.as_bytes()))
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

pub(super) async fn entries(State(door): State<AdminDoor>, Query(listed): Query<Listed>) -> Answer {
    let search = listed.search.to_lowercase();
    let mut body = br#"{"entries":["#.to_vec();
    let mut total = 0;
    let visit = |key: &str, entry: &Entry| {
        if search.is_empty() || key.to_lowercase().contains(&search) {
            if (1..ENTRIES_MAX).contains(&total) {
                body.push(b',');
            }
            if total < ENTRIES_MAX {
                put_entry(&mut body, key, entry, true);
            }
            total += 1;
        }
        ControlFlow::Continue(())
    };
    door.kv.visit(&listed.pattern, None, visit).await?;
    body.extend_from_slice(br#"],"total":"#);
    put_number(&mut body, total);
    body.push(b'}');
    Ok(json(StatusCode::OK, body))
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

/// What is kept of a value in JSON.
fn stored(value: Option<&str>) -> Result<Cow<'_, str>, Refusal> {
    match value {
        None => Ok(Cow::Borrowed("")),
        Some(text) if text.starts_with('"') => serde_json::from_str::<String>(text)
            .map(Cow::Owned)
            .map_err(|_| Refusal::bad_request("invalid json")),
        Some(text) => Ok(Cow::Borrowed(text)),
    }
}

/// `head`, the key, `tail`.
fn answer(key: &str, head: &[u8], tail: &[u8]) -> Response {
    let mut body = head.to_vec();
    put_string(&mut body, key);
    body.extend_from_slice(tail);
    json(StatusCode::OK, body)
}

fn put_entry(body: &mut Vec<u8>, key: &str, entry: &Entry, size: bool) {
    body.extend_from_slice(br#"{"key":"#);
    put_string(body, key);
    body.extend_from_slice(br#","value":"#);
    put_value(body, &entry.value);
    body.extend_from_slice(br#","ttl":"#);
    match entry.expires {
        None => body.extend_from_slice(b"-1"),
        Some(expires) => put_number(body, expires.since(clock::now())),
    }
    body.extend_from_slice(br#","created_at":"#);
    put_number(body, entry.created.0.saturating_mul(1_000_000));
    if size {
        body.extend_from_slice(br#","size":"#);
        put_number(body, entry.value.len() as u64);
    }
    body.push(b'}');
}

fn put_value(body: &mut Vec<u8>, value: &[u8]) {
    match std::str::from_utf8(value) {
        Ok(text) if serde_json::from_str::<&RawValue>(text).is_ok() => body.extend_from_slice(value),
        Ok(text) => put_string(body, text),
        Err(_) => put_string(body, &String::from_utf8_lossy(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(json: &str) -> String {
        let kept = stored(Some(json)).unwrap();
        let mut body = Vec::new();
        put_value(&mut body, kept.as_bytes());
        String::from_utf8(body).unwrap()
    }

    #[test]
    fn values_come_back_as_json_if_they_can_be() {
        for (given, back) in [
            (r#""text""#, r#""text""#),
            (r#""7""#, "7"),
            (r#""007""#, r#""007""#),
            (r#""true""#, "true"),
            (r#""{}""#, "{}"),
            (r#"{"a": [1,2]}"#, r#"{"a": [1,2]}"#),
            ("7.50", "7.50"),
            (r#""""#, r#""""#),
            (r#""a\"b\n""#, r#""a\"b\n""#),
        ] {
            assert_eq!(round(given), back, "{given}");
        }
        assert_eq!(stored(None).unwrap(), "");
    }
}
