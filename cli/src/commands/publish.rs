//! `boltq publish`

use std::collections::BTreeMap;
use std::ffi::OsString;

use boltq_proto::queue::v1::{AckLevel, PublishRequest};
use boltq_proto::r#type::v1::Message;
use bytes::Bytes;
use serde::de::IgnoredAny;

use super::lines::Line;
use super::{Context, publish_file, wire};
use crate::args::{Envelope, Publish};
use crate::connect::answer;
use crate::error::CliError;
use crate::printer::{Id, Published};

pub(super) async fn run(context: &mut Context, publish: Publish) -> Result<(), CliError> {
    let Publish {
        queue,
        payload,
        file,
        print_ids,
        ack_level,
        envelope,
    } = publish;
    let ack_level = ack_level.map_or(AckLevel::Quorum, AckLevel::from);
    if print_ids && ack_level != AckLevel::Quorum {
        let reason = "--print-ids needs --ack-level quorum: a message gets its id when a majority has it";
        return Err(CliError::Usage(reason.to_owned()));
    }
    let template = Template::of(envelope)?;
    match file {
        Some(file) => publish_file::run(context, &queue, &file, &template, (ack_level, print_ids)).await,
        None => publish_one(context, queue, payload.unwrap_or_default(), &template).await,
    }
}

async fn publish_one(
    context: &mut Context,
    queue: String,
    payload: OsString,
    template: &Template,
) -> Result<(), CliError> {
    let mut client = context.server.queues();
    let message = template.message(Bytes::from(payload.into_encoded_bytes()));
    let request = PublishRequest {
        queue: queue.clone(),
        message: Some(message),
    };
    let response = answer(client.publish(request), None).await?;
    let message_id = Id::read(&response.message_id)?;
    context.printer.print(&Published {
        queue: &queue,
        message_id,
    })?;
    Ok(())
}

/// Everything of a message but its payload.
#[derive(Debug)]
pub(super) struct Template {
    headers: BTreeMap<String, String>,
    /// `None`: JSON if it is.
    content_type: Option<String>,
    priority: i32,
    delay: Option<prost_types::Duration>,
    ttl: Option<prost_types::Duration>,
    /// Empty: none.
    idempotency_key: String,
    /// Empty: none.
    ordering_key: String,
}

impl Template {
    pub(super) fn of(envelope: Envelope) -> Result<Self, CliError> {
        let Envelope {
            headers: pairs,
            delay,
            ttl,
            priority,
            content_type,
            idempotency_key,
            ordering_key,
        } = envelope;
        let mut headers = BTreeMap::new();
        for (key, value) in pairs {
            if headers.contains_key(&key) {
                return Err(CliError::Usage(format!(
                    "header {key:?} is given twice; a header has one value"
                )));
            }
            headers.insert(key, value);
        }
        Ok(Self {
            headers,
            content_type,
            priority,
            delay: delay.map(wire).transpose()?,
            ttl: ttl.map(wire).transpose()?,
            idempotency_key: idempotency_key.unwrap_or_default(),
            ordering_key: ordering_key.unwrap_or_default(),
        })
    }

    pub(super) fn message(&self, payload: Bytes) -> Message {
        let content_type = match &self.content_type {
            Some(content_type) => content_type.clone(),
            None if is_json(&payload) => "application/json".to_owned(),
            None => String::new(),
        };
        Message {
            payload,
            headers: self.headers.clone(),
            content_type,
            priority: self.priority,
            delay: self.delay,
            ttl: self.ttl,
            idempotency_key: self.idempotency_key.clone(),
            ordering_key: self.ordering_key.clone(),
        }
    }

    /// The message of a line of a file.
    pub(super) fn line(&self, line: Line) -> Message {
        let mut message = self.message(line.text);
        if !message.idempotency_key.is_empty() {
            message.idempotency_key = format!("{}:{}", self.idempotency_key, line.number);
        }
        message
    }

    /// Bytes of all headers.
    pub(super) fn header_bytes(&self) -> usize {
        self.headers.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

/// Whether the bytes are one JSON value. Text first: `IgnoredAny` does not look into strings.
fn is_json(payload: &[u8]) -> bool {
    std::str::from_utf8(payload).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn envelope() -> Envelope {
        Envelope {
            headers: Vec::new(),
            delay: None,
            ttl: None,
            priority: 0,
            content_type: None,
            idempotency_key: None,
            ordering_key: None,
        }
    }

    fn content_type(given: Option<&str>, payload: &'static [u8]) -> String {
        let content_type = given.map(ToOwned::to_owned);
        let template = Template::of(Envelope {
            content_type,
            ..envelope()
        })
        .unwrap();
        template.message(Bytes::from_static(payload)).content_type
    }

    #[test]
    fn a_payload_that_is_json_is_declared_as_json() {
        for json in [&b"{\"to\":\"a\"}"[..], b"5", b" null ", b"\"text\""] {
            assert_eq!(content_type(None, json), "application/json");
        }
        for other in [&b"hello"[..], b"", b"{", b"{} {}", b"\"\xff\""] {
            assert_eq!(content_type(None, other), "");
        }
    }

    #[test]
    fn a_given_content_type_wins_even_if_it_is_empty() {
        assert_eq!(content_type(Some("text/plain"), b"5"), "text/plain");
        assert_eq!(content_type(Some(""), b"5"), "");
    }

    #[test]
    fn the_envelope_is_sent_with_the_payload() {
        let template = Template::of(Envelope {
            headers: vec![("a".into(), "1".into())],
            delay: Some(Duration::from_millis(1500)),
            ttl: Some(Duration::from_secs(60)),
            priority: 9,
            content_type: None,
            idempotency_key: Some("k".into()),
            ordering_key: Some("o".into()),
        });
        let template = template.unwrap();
        let message = template.message(Bytes::from_static(b"x"));
        assert_eq!(message.headers["a"], "1");
        assert_eq!(message.delay.unwrap().to_string(), "1.500s");
        assert_eq!(message.ttl.unwrap().to_string(), "60s");
        assert_eq!((message.priority, &*message.idempotency_key), (9, "k"));
        let text = Bytes::from_static(b"y");
        let line = template.line(Line { number: 7, text });
        assert_eq!((&*line.idempotency_key, &*line.ordering_key), ("k:7", "o"));
    }

    #[test]
    fn a_header_that_is_given_twice_is_wrong_usage() {
        let headers = vec![("a".into(), "1".into()), ("a".into(), "2".into())];
        let error = Template::of(Envelope { headers, ..envelope() }).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
}
