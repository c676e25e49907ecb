//! Values as JSON.
//!
//! A value may be any JSON. A string is kept as its characters, anything else as its text. What is read is JSON if it can be,
//! and a string otherwise; so the string `"7"` comes back as the number 7, and what is empty as an empty string.

use std::borrow::Cow;

use boltq_kv::Entry;
use serde_json::value::RawValue;

use crate::clock;
use crate::doors::http::refusal::Refusal;
use crate::doors::http::streamed::{Gone, PART_BYTES, Sink};
use crate::doors::json::{put_escaped, put_number, put_string};

/// What is kept of a value in JSON.
pub(super) fn stored(value: Option<&str>) -> Result<Cow<'_, str>, Refusal> {
    match value {
        None => Ok(Cow::Borrowed("")),
        Some(text) if text.starts_with('"') => serde_json::from_str::<String>(text)
            .map(Cow::Owned)
            .map_err(|_| Refusal::bad_request("invalid json")),
        Some(text) => Ok(Cow::Borrowed(text)),
    }
}

/// What is written of an entry.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) key: &'a str,
    pub(super) entry: &'a Entry,
    /// Whether to say how many bytes the value has.
    pub(super) size: bool,
}

impl Shown<'_> {
    /// Appends it to `part`, which is sent whenever it is large enough.
    pub(super) async fn write(self, part: &mut Vec<u8>, sink: &Sink) -> Result<(), Gone> {
        self.put_head(part);
        let value = &self.entry.value[..];
        let quoted = !is_json(value);
        if quoted {
            part.push(b'"');
        }
        let mut rest = value;
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(piece(rest));
            match quoted {
                true => put_escaped(part, &String::from_utf8_lossy(piece)),
                false => part.extend_from_slice(piece),
            }
            rest = more;
            if part.len() >= PART_BYTES {
                sink.send(part).await?;
            }
        }
        if quoted {
            part.push(b'"');
        }
        self.put_tail(part);
        Ok(())
    }

    fn put_head(self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"key":"#);
        put_string(out, self.key);
        out.extend_from_slice(br#","value":"#);
    }

    fn put_tail(self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#","ttl":"#);
        match self.entry.expires {
            None => out.extend_from_slice(b"-1"),
            Some(expires) => put_number(out, expires.since(clock::now())),
        }
        out.extend_from_slice(br#","created_at":"#);
        put_number(out, self.entry.created.0.saturating_mul(1_000_000));
        if self.size {
            out.extend_from_slice(br#","size":"#);
            put_number(out, self.entry.value.len() as u64);
        }
        out.push(b'}');
    }
}

/// Whether it is one JSON value; nothing is not.
fn is_json(value: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(value).is_ok()
}

/// Bytes up to the end of a character, and not many.
fn piece(value: &[u8]) -> usize {
    if value.len() <= PART_BYTES {
        return value.len();
    }
    let begins = |at: &usize| value[*at] & 0b1100_0000 != 0b1000_0000;
    // No character has more than four bytes; what is none is cut anywhere.
    (PART_BYTES - 3..=PART_BYTES).rev().find(begins).unwrap_or(PART_BYTES)
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use boltq_core::Millis;
    use bytes::Bytes;

    use super::*;
    use crate::doors::http::streamed::streamed;

    async fn shown(value: Bytes) -> serde_json::Value {
        let response = streamed(|sink| async move {
            let entry = Entry {
                value,
                expires: None,
                created: Millis(7),
                version: 1,
            };
            let shown = Shown {
                key: "k\"",
                entry: &entry,
                size: true,
            };
            let mut part = Vec::new();
            shown.write(&mut part, &sink).await.map_err(|_| Refusal::NoLeader)?;
            sink.send(&mut part).await.map_err(|_| Refusal::NoLeader)
        });
        let body = to_bytes(response.await.unwrap().into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    async fn round(json: &str) -> String {
        let kept = stored(Some(json)).unwrap().into_owned();
        let shown = shown(kept.into()).await;
        shown["value"].to_string()
    }

    #[tokio::test]
    async fn values_come_back_as_json_if_they_can_be() {
        for (given, back) in [
            (r#""text""#, r#""text""#),
            (r#""7""#, "7"),
            (r#""007""#, r#""007""#),
            (r#""true""#, "true"),
            (r#""{}""#, "{}"),
            (r#"{"a": [1,2]}"#, r#"{"a":[1,2]}"#),
            ("7.50", "7.5"),
            (r#""""#, r#""""#),
            (r#""a\"b\n""#, r#""a\"b\n""#),
        ] {
            assert_eq!(round(given).await, back, "{given}");
        }
        assert_eq!(stored(None).unwrap(), "");
        let whole = shown(Bytes::from_static(b"[1]")).await.to_string();
        let wanted = r#"{"created_at":7000000,"key":"k\"","size":3,"ttl":-1,"value":[1]}"#;
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(wanted).unwrap().to_string(),
            whole
        );
    }

    #[tokio::test]
    async fn large_values_come_in_parts_without_tearing_a_character() {
        for text in ["ö".repeat(PART_BYTES), "\u{1}😀x".repeat(PART_BYTES / 4)] {
            for shift in 0..4 {
                let text = format!("{}{text}", "-".repeat(shift));
                let shown = shown(text.clone().into()).await;
                assert_eq!(shown["value"], text);
                assert_eq!(shown["size"], text.len());
            }
        }
        let digits = "1".repeat(3 * PART_BYTES);
        let list = format!("[\"{digits}\"]");
        assert_eq!(shown(list.into()).await["value"][0], digits);
        let garbage = shown(vec![0xFF; 2 * PART_BYTES + 1].into()).await;
        assert_eq!(garbage["value"].as_str().unwrap().chars().count(), 2 * PART_BYTES + 1);
    }
}
