//! JSON for programs: one object a line, and names that are never renamed.

use std::borrow::Cow;
use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::ser::Formatter;
use serde_json::value::RawValue;

use super::plain::json_escaped;
use super::{Delivered, Payload};

/// One object, one line.
pub(crate) fn line(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut *out, ForTerminals))?;
    out.write_all(b"\n")
}

/// Compact, and what a terminal would act on is escaped also where JSON does not ask for that.
struct ForTerminals;

impl Formatter for ForTerminals {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        writer.write_all(json_escaped(fragment).as_bytes())
    }

    fn write_raw_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        writer.write_all(json_escaped(fragment).as_bytes())
    }
}

/// A payload as JSON carries it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum JsonPayload<'a> {
    /// Embedded, so that `jq .payload.to` works; digits and order of members as they were published.
    Json(Box<RawValue>),
    Text(&'a str),
    Base64(String),
}

impl<'a> JsonPayload<'a> {
    fn of(payload: &'a Payload) -> (Self, &'static str) {
        match std::str::from_utf8(&payload.bytes) {
            Ok(text) if payload.is_json => match RawValue::from_string(on_one_line(text).into_owned()) {
                Ok(json) => (Self::Json(json), "json"),
                Err(_) => (Self::Text(text), "text"),
            },
            Ok(text) => (Self::Text(text), "text"),
            Err(_) => (Self::Base64(STANDARD.encode(&payload.bytes)), "base64"),
        }
    }
}

/// JSON has no raw line ends inside strings, so all that there are can become spaces.
fn on_one_line(json: &str) -> Cow<'_, str> {
    match json.contains(['\n', '\r']) {
        true => Cow::Owned(json.replace(['\n', '\r'], " ")),
        false => Cow::Borrowed(json),
    }
}

impl Serialize for Delivered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (payload, encoding) = JsonPayload::of(&self.payload);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("message_id", &self.message_id)?;
        map.serialize_entry("attempts", &self.attempts)?;
        map.serialize_entry("priority", &self.priority)?;
        map.serialize_entry("published_at", &self.published_at)?;
        map.serialize_entry("expires_at", &self.expires_at)?;
        map.serialize_entry("content_type", &self.content_type)?;
        map.serialize_entry("headers", &self.headers)?;
        map.serialize_entry("payload", &payload)?;
        map.serialize_entry("payload_encoding", encoding)?;
        if let Some(token) = &self.delivery_token {
            map.serialize_entry("delivery_token", &STANDARD.encode(token))?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::tests::delivered;
    use super::*;

    fn shown(payload: &'static [u8], is_json: bool) -> String {
        let message = Delivered {
            payload: Payload {
                bytes: Bytes::from_static(payload),
                is_json,
            },
            ..delivered()
        };
        let mut out = Vec::new();
        line(&message, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_message_is_one_line_with_stable_names() {
        assert_eq!(
            shown(b"{\n\"n\": 12345678901234567890.10\r\n}", true),
            concat!(
                r#"{"message_id":"000102030405060708090a0b0c0d0e0f","attempts":2,"priority":0,"#,
                r#""published_at":"2025-01-01T00:00:00Z","expires_at":null,"content_type":"","#,
                r#""headers":{"a":"1","b":"2"},"payload":{ "n": 12345678901234567890.10  },"payload_encoding":"json"}"#,
                "\n",
            )
        );
    }

    #[test]
    fn what_a_terminal_would_act_on_is_escaped_wherever_it_stands() {
        let tricks = "\u{202e}\u{2066}\u{200f}\u{9b}\u{7f}";
        let mut message = Delivered {
            content_type: tricks.into(),
            headers: [(tricks.to_owned(), tricks.to_owned())].into(),
            ..delivered()
        };
        for (payload, is_json) in [(tricks.to_owned(), false), (format!("[\"{tricks}\"]"), true)] {
            message.payload = Payload {
                bytes: Bytes::from(payload.clone()),
                is_json,
            };
            let mut out = Vec::new();
            line(&message, &mut out).unwrap();
            let shown = String::from_utf8(out).unwrap();
            assert!(shown.is_ascii() && !shown.contains('\u{7f}'), "{shown}");
            let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
            let expected = match is_json {
                true => serde_json::from_str(&payload).unwrap(),
                false => serde_json::Value::from(payload),
            };
            assert_eq!(read["payload"], expected);
            assert_eq!(
                (&read["content_type"], &read["headers"][tricks]),
                (&tricks.into(), &tricks.into())
            );
        }
    }

    #[test]
    fn other_payloads_are_text_or_base64_and_say_so() {
        assert!(shown(b"line\n\0", false).ends_with("\"payload\":\"line\\n\\u0000\",\"payload_encoding\":\"text\"}\n"));
        assert!(shown(b"\xff\x00", false).ends_with("\"payload\":\"/wA=\",\"payload_encoding\":\"base64\"}\n"));
        assert!(shown(b"{}", false).ends_with("\"payload\":\"{}\",\"payload_encoding\":\"text\"}\n"));
    }

    #[test]
    fn what_only_claims_to_be_json_does_not_break_the_line() {
        assert!(shown(b"{\"a\":", true).ends_with("\"payload\":\"{\\\"a\\\":\",\"payload_encoding\":\"text\"}\n"));
    }
}
