//! Answers of the client as scenarios see them.

use boltq::{Delivery, Entry, MessageId, NotSettled, QueueSettings, TopicMessage, WatchEvent};
use bytes::Bytes;
use serde_json::{Value, json};

pub(super) fn delivery(delivery: &Delivery) -> Value {
    json!({
        "delivery_token": hex(delivery.token()),
        "message_id": delivery.id().to_string(),
        "payload": text(delivery.payload()),
        "headers": delivery.headers(),
        "content_type": delivery.content_type(),
        "priority": delivery.priority(),
        "attempts": delivery.attempts(),
        "ordering_key": delivery.ordering_key(),
    })
}

pub(super) fn topic_message(message: &TopicMessage) -> Value {
    json!({
        "message_id": message.id.to_string(),
        "payload": text(&message.payload),
        "headers": message.headers,
        "content_type": message.content_type,
        "priority": message.priority,
    })
}

pub(super) fn entry(entry: &Entry) -> Value {
    json!({"key": entry.key, "value": text(&entry.value), "version": entry.version})
}

pub(super) fn event(event: &WatchEvent) -> Value {
    match event {
        WatchEvent::Put(put) => json!({"put": entry(put)}),
        WatchEvent::Removed { key, version } => json!({"removed": {"key": key, "version": version}}),
        WatchEvent::Ready { version } => json!({"ready": {"version": version}}),
        WatchEvent::Flushed { version } => json!({"flushed": {"version": version}}),
        other => panic!("{other:?} is new"),
    }
}

pub(super) fn settled(member: &str, (count, failures): (u32, Vec<(Bytes, NotSettled)>)) -> Value {
    let failures: Vec<Value> = failures
        .iter()
        .map(|(token, why)| json!({"token": hex(token), "reason": why.reason()}))
        .collect();
    json!({member: count, "failures": failures})
}

pub(super) fn queue(queue: &boltq::proto::queue::v1::Queue) -> Value {
    json!({
        "name": queue.name,
        "ready": queue.ready,
        "leased": queue.leased,
        "delayed": queue.delayed,
        "dead_letters": queue.dead_letters,
        "settings": settings(&queue.settings.clone().unwrap_or_default().into()),
    })
}

pub(super) fn settings(settings: &QueueSettings) -> Value {
    let duration = |value: Option<std::time::Duration>| {
        value.map(|value| match value.subsec_millis() {
            0 => format!("{}s", value.as_secs()),
            _ => format!("{}ms", value.as_millis()),
        })
    };
    json!({
        "max_retry": settings.max_retry,
        "retry_backoff": duration(settings.retry_backoff),
        "retry_backoff_max": duration(settings.retry_backoff_max),
        "ack_timeout": duration(settings.ack_timeout),
        "default_ttl": duration(settings.default_ttl),
        "max_length": settings.max_length,
        "max_length_bytes": settings.max_length_bytes,
        "overflow": match settings.overflow {
            boltq::Overflow::Reject => "REJECT",
            boltq::Overflow::DropOldest => "DROP_OLDEST",
        },
        "dead_letter_queue": settings.dead_letter_queue,
        "dedup_ttl": duration(settings.dedup_ttl),
        "single_active_consumer": settings.single_active_consumer,
        "paused": settings.paused,
    })
}

/// `NotFound` as `NOT_FOUND`.
pub(super) fn screaming(name: &str) -> String {
    let mut screaming = String::new();
    for (at, letter) in name.char_indices() {
        if at > 0 && letter.is_uppercase() {
            screaming.push('_');
        }
        screaming.extend(letter.to_uppercase());
    }
    screaming
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Of tokens and ids that an earlier answer had.
pub(super) fn from_hex(text: &Value) -> Bytes {
    let text = text.as_str().expect("hexadecimal digits");
    let bytes = (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("digits"));
    bytes.collect::<Vec<u8>>().into()
}

pub(super) fn message_id(text: &Value) -> MessageId {
    MessageId::try_from(&from_hex(text)[..]).expect("an id")
}
