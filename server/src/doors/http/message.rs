//! A message of a queue as the admin port shows it.

use boltq_core::{MessageId, Millis, Record};

use super::query::Parameters;
use super::refusal::Refusal;
use crate::doors::json::{put_base64, put_number, put_string};
use crate::doors::push::put_headers;
use crate::service::delivered_headers;

const MS_NS: u64 = 1_000_000;
/// The last number of nanoseconds that an int64 has, as which clients read them: in April 2262.
const NS_MAX: u64 = i64::MAX.unsigned_abs();

/// What is shown, and where it comes from.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) queue: &'a str,
    pub(super) id: MessageId,
    /// Failed ones so far.
    pub(super) attempts: u32,
    /// Attempts after the first one, of any message of the queue.
    pub(super) max_retry: u32,
    pub(super) record: &'a Record,
}

/// How it is shown.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// Older servers show payloads as the base64 of their text, also those that are JSON.
    base64: bool,
}

impl Form {
    /// As `payload` asks for.
    pub(super) fn of(query: &Parameters) -> Result<Self, Refusal> {
        let base64 = match query.text("payload") {
            "" | "json" => false,
            "base64" => true,
            _ => return Err(Refusal::bad_request("payload is json or base64")),
        };
        Ok(Self { base64 })
    }

    /// Appends the object. Of the members behind `delivery_count`, those are left out that say nothing.
    pub(super) fn put(self, out: &mut Vec<u8>, shown: Shown<'_>) {
        let record = shown.record;
        out.extend_from_slice(br#"{"id":""#);
        out.extend_from_slice(&shown.id.hex());
        out.extend_from_slice(br#"","topic":"#);
        put_string(out, shown.queue);
        out.extend_from_slice(br#","payload":"#);
        match record.json && !self.base64 {
            true => out.extend_from_slice(&record.payload),
            false => put_base64(out, &record.payload),
        }
        if !record.json {
            out.extend_from_slice(br#","payload_encoding":"base64""#);
        }
        put_headers(out, delivered_headers(record));
        let attempts = u64::from(shown.attempts);
        let always = [
            (r#","timestamp":"#, record.published_ns),
            (r#","retry":"#, attempts),
            (r#","max_retry":"#, u64::from(shown.max_retry)),
            (r#","delivery_count":"#, attempts),
        ];
        for (name, number) in always {
            out.extend_from_slice(name.as_bytes());
            put_number(out, number);
        }
        let times = [
            (
                r#","delay":"#,
                record.due.map(|due| whole_ms_ns(record.published_ns, due)),
            ),
            (
                r#","ttl":"#,
                record.expires.map(|end| whole_ms_ns(record.published_ns, end)),
            ),
            (r#","deliver_at":"#, record.due.map(ns)),
            (r#","expires_at":"#, record.expires.map(ns)),
            (r#","priority":"#, Some(u64::from(record.priority))),
        ];
        for (name, number) in times {
            if let Some(number) = number.filter(|number| *number > 0) {
                out.extend_from_slice(name.as_bytes());
                put_number(out, number.min(NS_MAX));
            }
        }
        let (exchange, routing_key) = record
            .origin()
            .map_or(("", ""), |origin| (origin.exchange, origin.routing_key));
        let texts = [
            (r#","exchange":"#, exchange),
            (r#","routing_key":"#, routing_key),
            (r#","ordering_key":"#, record.ordering_key()),
        ];
        for (name, text) in texts {
            if !text.is_empty() {
                out.extend_from_slice(name.as_bytes());
                put_string(out, text);
            }
        }
        out.push(b'}');
    }
}

fn ns(time: Millis) -> u64 {
    time.0.saturating_mul(MS_NS)
}

/// From the publish until then. A time is kept as the millisecond by which it has come, so a duration of whole milliseconds
/// comes back as it was given.
fn whole_ms_ns(published_ns: u64, until: Millis) -> u64 {
    ns(until).saturating_sub(published_ns) / MS_NS * MS_NS
}

#[cfg(test)]
mod tests {
    use boltq_core::{Origin, RecordBuilder};
    use bytes::BytesMut;
    use serde_json::{Value, json};

    use super::*;

    const PUBLISHED_NS: u64 = 1_735_689_600_123_456_789;

    fn builder(json: bool, payload: &[u8]) -> RecordBuilder<'_> {
        RecordBuilder {
            json,
            priority: 0,
            published_ns: PUBLISHED_NS,
            expires: None,
            due: None,
            ordering_key: "",
            id: None,
            payload,
        }
    }

    fn record(builder: &RecordBuilder<'_>, origin: Option<Origin<'_>>, headers: &[(&str, &str)]) -> Record {
        let mut bytes = BytesMut::new();
        builder.write_routed(origin, headers.iter().copied(), &mut bytes);
        Record::read(&bytes.freeze()).unwrap()
    }

    fn shown(record: &Record, base64: bool) -> Value {
        let mut out = Vec::new();
        let message = Shown {
            queue: "q",
            id: MessageId([7; 16]),
            attempts: 2,
            max_retry: 5,
            record,
        };
        Form { base64 }.put(&mut out, message);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn what_says_nothing_is_left_out() {
        let wanted = json!({"id": "07".repeat(16), "topic": "q", "payload": null, "timestamp": PUBLISHED_NS, "retry": 2,
            "max_retry": 5, "delivery_count": 2});
        assert_eq!(shown(&record(&builder(true, b"null"), None, &[]), false), wanted);
    }

    #[test]
    fn everything_else_is_there() {
        let builder = RecordBuilder {
            priority: 4,
            due: Some(Millis(1_735_689_601_124)),
            expires: Some(Millis(1_735_689_660_124)),
            ordering_key: "order-17",
            ..builder(true, br#"{"a":1.0}"#)
        };
        let origin = Origin {
            id: MessageId([9; 16]),
            exchange: "orders",
            routing_key: "eu.new",
        };
        let body = shown(&record(&builder, Some(origin), &[("k", "v")]), false);
        let wanted = json!({"id": "07".repeat(16), "topic": "q", "payload": {"a": 1.0},
            "headers": {"k": "v", "boltq-publish-id": "09".repeat(16)}, "timestamp": PUBLISHED_NS, "retry": 2,
            "max_retry": 5, "delivery_count": 2, "delay": 1_000_000_000_u64, "ttl": 60_000_000_000_u64,
            "deliver_at": 1_735_689_601_124_000_000_u64, "expires_at": 1_735_689_660_124_000_000_u64, "priority": 4,
            "exchange": "orders", "routing_key": "eu.new", "ordering_key": "order-17"});
        assert_eq!(body, wanted);
    }

    #[test]
    fn what_ends_later_than_an_int64_can_say_is_shown_as_its_last() {
        let builder = RecordBuilder {
            expires: Some(Millis((PUBLISHED_NS + NS_MAX).div_ceil(MS_NS))),
            ..builder(true, b"1")
        };
        let body = shown(&record(&builder, None, &[]), false);
        assert_eq!(
            (body["ttl"].as_i64(), body["expires_at"].as_i64()),
            (Some(i64::MAX), Some(i64::MAX))
        );
    }

    #[test]
    fn base64_is_for_who_asks_for_it_and_for_what_is_no_json() {
        let json = record(&builder(true, br#"{"a":1}"#), None, &[]);
        let body = shown(&json, true);
        assert_eq!(
            (&body["payload"], body.get("payload_encoding")),
            (&json!("eyJhIjoxfQ=="), None)
        );
        let bytes = record(&builder(false, b"\xff\x00"), None, &[]);
        for base64 in [false, true] {
            let body = shown(&bytes, base64);
            assert_eq!(
                (&body["payload"], &body["payload_encoding"]),
                (&json!("/wA="), &json!("base64"))
            );
        }
    }
}
