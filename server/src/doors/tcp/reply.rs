//! Replies, written straight into the output of a connection.
//!
//! JSON is written by hand: the shapes are few and fixed, and payloads are embedded as the bytes that they are.

use boltq_core::MessageId;

use super::frame::{self, Status};
use crate::cluster::ClusterError;
use crate::doors::body::shortened;
use crate::doors::cluster_status;
use crate::doors::json::{put_base64, put_number, put_string};
use crate::doors::push::{self, put_headers};
use crate::doors::statistics;
use crate::service::{ClusterStatus, Delivery, Leader, Push, Routed, ServiceError, Stats, delivered_headers};

/// Longest part of a request that is repeated in an error.
const ECHO_BYTES_MAX: usize = 256;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A sentence.
    Error(String),
    /// Somebody else leads.
    NotLeader(Leader),
}

impl From<&ServiceError> for Refusal {
    fn from(error: &ServiceError) -> Self {
        match error {
            ServiceError::NotLeader(leader) => Self::NotLeader(leader.clone()),
            other => Self::Error(other.to_string()),
        }
    }
}

impl From<&ClusterError> for Refusal {
    fn from(error: &ClusterError) -> Self {
        match error {
            ClusterError::NoLeader { .. } => Self::NotLeader(Leader::default()),
            other => Self::Error(other.to_string()),
        }
    }
}

/// The numbers that a publish gets in confirm mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Confirm {
    pub(super) seq_no: u64,
}

pub(super) fn status(out: &mut Vec<u8>, status: &str) {
    reply(out, Status::Ok, |out| {
        out.extend_from_slice(br#"{"status":"#);
        put_string(out, status);
        out.push(b'}');
    });
}

pub(super) fn empty(out: &mut Vec<u8>) {
    reply(out, Status::Empty, |_| {});
}

pub(super) fn error(out: &mut Vec<u8>, text: &str) {
    reply(out, Status::Error, |out| {
        out.extend_from_slice(br#"{"error":"#);
        put_string(out, text);
        out.push(b'}');
    });
}

pub(super) fn refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    match refusal {
        Refusal::Error(text) => error(out, text),
        Refusal::NotLeader(leader) => reply(out, Status::NotLeader, |out| {
            // Clients dial `leader`. Older servers had the other address there, where no client gets an answer.
            out.extend_from_slice(br#"{"error":"not leader","leader":"#);
            put_string(out, &leader.messaging);
            out.extend_from_slice(br#","leader_id":"#);
            put_string(out, &leader.name);
            out.extend_from_slice(br#","leader_raft_addr":"#);
            put_string(out, &leader.raft);
            out.push(b'}');
        }),
    }
}

/// A message that nobody holds, or no longer, or that never was.
pub(super) fn not_pending(out: &mut Vec<u8>, id: &str) {
    let id = shortened(id, ECHO_BYTES_MAX);
    error(out, &format!("message {id} not found in pending"));
}

pub(super) fn published(out: &mut Vec<u8>, id: MessageId, topic: &str, confirm: Option<Confirm>) {
    reply(out, Status::Ok, |out| {
        put_published(out, id, topic, confirm);
        out.push(b'}');
    });
}

/// As [`published`], with the number of queues that have the message.
pub(super) fn routed(out: &mut Vec<u8>, routed: Routed, topic: &str, confirm: Option<Confirm>) {
    reply(out, Status::Ok, |out| {
        put_published(out, routed.id, topic, confirm);
        out.extend_from_slice(br#","routed":"#);
        put_number(out, routed.queues as u64);
        out.push(b'}');
    });
}

fn put_published(out: &mut Vec<u8>, id: MessageId, topic: &str, confirm: Option<Confirm>) {
    out.extend_from_slice(br#"{"id":""#);
    out.extend_from_slice(&id.hex());
    out.extend_from_slice(br#"","topic":"#);
    put_string(out, topic);
    if let Some(Confirm { seq_no }) = confirm {
        out.extend_from_slice(br#","seq_no":"#);
        put_number(out, seq_no);
        out.extend_from_slice(br#","ack":true"#);
    }
}

/// Returns whether the message fits into a frame; if not, nothing was written.
#[must_use]
pub(super) fn delivery(out: &mut Vec<u8>, topic: &str, delivery: &Delivery) -> bool {
    let record = &delivery.record;
    frame::put(out, Status::Ok, |out| {
        out.extend_from_slice(br#"{"id":""#);
        out.extend_from_slice(&delivery.id.hex());
        out.extend_from_slice(br#"","topic":"#);
        put_string(out, topic);
        out.extend_from_slice(br#","payload":"#);
        if record.json {
            out.extend_from_slice(&record.payload);
        } else {
            put_base64(out, &record.payload);
            out.extend_from_slice(br#","payload_encoding":"base64""#);
        }
        put_headers(out, delivered_headers(record));
        out.extend_from_slice(br#","timestamp":"#);
        put_number(out, record.published_ns);
        out.extend_from_slice(br#","retry":"#);
        put_number(out, u64::from(delivery.attempts));
        if !record.ordering_key().is_empty() {
            out.extend_from_slice(br#","ordering_key":"#);
            put_string(out, record.ordering_key());
        }
        out.push(b'}');
    })
}

pub(super) fn statistics(out: &mut Vec<u8>, stats: &Stats) {
    let written = frame::put(out, Status::Ok, |out| statistics::put(out, stats));
    if !written {
        error(
            out,
            "the statistics do not fit into a frame; ask the admin port for /stats",
        );
    }
}

/// `None`: this node is alone by configuration.
pub(super) fn cluster_status(out: &mut Vec<u8>, status: Option<&ClusterStatus>) {
    reply(out, Status::Ok, |out| cluster_status::put(out, status));
}

/// A node joined or was removed.
pub(super) fn cluster_change(out: &mut Vec<u8>, status: &str, node_id: &str) {
    reply(out, Status::Ok, |out| {
        out.extend_from_slice(br#"{"status":"#);
        put_string(out, status);
        out.extend_from_slice(br#","node_id":"#);
        put_string(out, node_id);
        out.push(b'}');
    });
}

/// A message of a topic. Returns whether it fits into a frame; if not, nothing was written.
#[must_use]
pub(super) fn push(out: &mut Vec<u8>, topic: &str, subscriber: &str, message: &Push) -> bool {
    frame::put(out, Status::Ok, |out| push::put(out, topic, message, Some(subscriber)))
}

/// For replies that are small whatever is in them.
fn reply(out: &mut Vec<u8>, status: Status, write: impl FnOnce(&mut Vec<u8>)) {
    let written = frame::put(out, status, write);
    debug_assert!(written, "only deliveries and statistics can be long");
}

#[cfg(test)]
mod tests {
    use super::*;
    use boltq_core::{Record, RecordBuilder};
    use bytes::BytesMut;
    use serde_json::{Value, json};

    const ID: MessageId = MessageId(*b"0123456789abcdef");

    fn read(out: &[u8]) -> (u8, Value) {
        match frame::start(out) {
            frame::Start::Frame {
                code,
                body: Some(body),
                body_bytes,
            } => {
                assert_eq!(out.len(), frame::HEADER_BYTES + body_bytes);
                (code, serde_json::from_slice(body).unwrap_or(Value::Null))
            }
            other => panic!("{other:?}"),
        }
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> (u8, Value) {
        let mut out = Vec::new();
        write(&mut out);
        read(&out)
    }

    #[test]
    fn the_bytes_are_those_of_the_protocol() {
        let mut out = Vec::new();
        status(&mut out, "pong");
        assert_eq!(out, b"\x00\x11\x00\x00\x00{\"status\":\"pong\"}");
        out.clear();
        empty(&mut out);
        assert_eq!(out, b"\x02\x00\x00\x00\x00");
        out.clear();
        error(&mut out, "unknown command: 0x7f");
        assert_eq!(out, b"\x01\x21\x00\x00\x00{\"error\":\"unknown command: 0x7f\"}");
        out.clear();
        let mut not_leader = |leader: Leader| {
            out.clear();
            refusal(&mut out, &Refusal::from(&ServiceError::NotLeader(leader)));
            assert_eq!(out[0], 3);
            out[5..].to_vec()
        };
        assert_eq!(
            not_leader(Leader::default()),
            br#"{"error":"not leader","leader":"","leader_id":"","leader_raft_addr":""}"#
        );
        let leader = Leader {
            name: "n2".to_owned(),
            messaging: "10.0.0.2:9091".to_owned(),
            raft: "10.0.0.2:9100".to_owned(),
        };
        let known =
            br#"{"error":"not leader","leader":"10.0.0.2:9091","leader_id":"n2","leader_raft_addr":"10.0.0.2:9100"}"#;
        assert_eq!(not_leader(leader), known);
    }

    #[test]
    fn a_publish_has_the_confirm_members_only_in_confirm_mode() {
        let id = "30313233343536373839616263646566";
        let plain = written(|out| published(out, ID, "q", None));
        assert_eq!(plain, (0, json!({"id": id, "topic": "q"})));
        let confirmed = written(|out| published(out, ID, "q", Some(Confirm { seq_no: 7 })));
        assert_eq!(
            confirmed,
            (0, json!({"id": id, "topic": "q", "seq_no": 7, "ack": true}))
        );
    }

    fn delivered(record: &RecordBuilder<'_>, headers: &[(&str, &str)]) -> Option<(u8, Value)> {
        let mut bytes = BytesMut::new();
        record.write(headers.iter().copied(), &mut bytes);
        let message = Delivery {
            token: crate::service::DeliveryToken::from_bytes(&[0; 24]).unwrap(),
            id: ID,
            attempts: 2,
            record: Record::read(&bytes.freeze()).unwrap(),
        };
        let mut out = Vec::new();
        delivery(&mut out, "q", &message).then(|| read(&out))
    }

    fn record(json: bool, payload: &[u8]) -> RecordBuilder<'_> {
        RecordBuilder {
            json,
            priority: 0,
            published_ns: 1_735_689_600_123_456_789,
            expires: None,
            due: None,
            ordering_key: "",
            id: None,
            payload,
        }
    }

    #[test]
    fn a_json_payload_is_embedded_and_headers_are_left_out_when_empty() {
        let wanted = json!({"id": "30313233343536373839616263646566", "topic": "q", "payload": {"a": [1]},
            "timestamp": 1_735_689_600_123_456_789_u64, "retry": 2});
        assert_eq!(delivered(&record(true, br#"{"a":[1]}"#), &[]), Some((0, wanted)));
        let keyed = RecordBuilder {
            ordering_key: "a\"b",
            ..record(true, b"1")
        };
        let (_, body) = delivered(&keyed, &[]).unwrap();
        assert_eq!(body["ordering_key"], json!("a\"b"));
        let (_, body) = delivered(&record(true, b"null"), &[("a", "1"), ("b", "\"\u{1}")]).unwrap();
        assert_eq!(body["headers"], json!({"a": "1", "b": "\"\u{1}"}));
        assert_eq!(body["payload"], Value::Null);
    }

    #[test]
    fn other_bytes_are_delivered_as_base64() {
        for (payload, encoded) in [(&b"\xff\x00"[..], "/wA="), (b"", ""), (b"abc", "YWJj")] {
            let (_, body) = delivered(&record(false, payload), &[]).unwrap();
            assert_eq!(
                (&body["payload"], &body["payload_encoding"]),
                (&json!(encoded), &json!("base64"))
            );
        }
    }

    #[test]
    fn a_message_that_does_not_fit_into_a_frame_is_not_written() {
        assert_eq!(delivered(&record(false, &vec![0; 3_500_000]), &[]), None);
        assert!(delivered(&record(true, &vec![b'1'; 3_500_000]), &[]).is_some());
    }

    #[test]
    fn an_unknown_id_is_repeated_but_not_without_end() {
        let short = written(|out| not_pending(out, "5f0c"));
        assert_eq!(short, (1, json!({"error": "message 5f0c not found in pending"})));
        let mut out = Vec::new();
        not_pending(&mut out, &"x".repeat(1_000_000));
        assert!(out.len() < 400);
    }
}
