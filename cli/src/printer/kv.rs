//! Results of `boltq kv …`.

use std::fmt::Display;
use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use boltq_proto::kv::v1 as pb;
use bytes::Bytes;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::amounts::count;
use super::layout::{lines_of_text, pairs};
use super::plain::printable;
use super::table::show;
use super::{Show, json};

/// As `boltq.kv.v1.Entry`; the value is a string, with its encoding beside it.
#[derive(Debug)]
pub(crate) struct KvEntry {
    key: String,
    value: Bytes,
    version: u64,
    /// RFC 3339.
    created_at: String,
    expires_at: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct KvSet {
    pub(crate) key: String,
    pub(crate) version: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct KvDeleted {
    pub(crate) key: String,
    pub(crate) deleted: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct KvExists {
    pub(crate) key: String,
    pub(crate) exists: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct KvKey {
    pub(crate) key: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct KvExpires {
    pub(crate) key: String,
    pub(crate) found: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct KvIncremented {
    pub(crate) key: String,
    pub(crate) value: i64,
    pub(crate) version: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct KvFlushed {
    pub(crate) removed: u64,
}

/// As `boltq.kv.v1.GetStatsResponse`, with its names; without a cache, `enabled` is all there is.
#[derive(Debug, Serialize)]
pub(crate) struct KvStats {
    enabled: bool,
    #[serde(flatten)]
    figures: Option<Figures>,
}

#[derive(Debug, Serialize)]
struct Figures {
    keys: u64,
    bytes: u64,
    hits: u64,
    misses: u64,
    sets: u64,
    deletes: u64,
    expired: u64,
    evicted: u64,
}

/// What a watcher is told. In JSON, `event` says what it is.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum KvChange {
    Put(KvEntry),
    Removed { key: String, version: u64 },
    Flushed { version: u64 },
    Ready { version: u64 },
}

impl From<pb::Entry> for KvEntry {
    fn from(entry: pb::Entry) -> Self {
        let pb::Entry {
            key,
            value,
            version,
            created_at,
            expires_at,
        } = entry;
        Self {
            key,
            value,
            version,
            created_at: created_at.unwrap_or_default().to_string(),
            expires_at: expires_at.map(|at| at.to_string()),
        }
    }
}

impl From<pb::GetStatsResponse> for KvStats {
    fn from(stats: pb::GetStatsResponse) -> Self {
        let pb::GetStatsResponse {
            enabled,
            keys,
            bytes,
            hits,
            misses,
            sets,
            deletes,
            expired,
            evicted,
        } = stats;
        let figures = enabled.then_some(Figures {
            keys,
            bytes,
            hits,
            misses,
            sets,
            deletes,
            expired,
            evicted,
        });
        Self { enabled, figures }
    }
}

impl Serialize for KvEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("key", &self.key)?;
        match std::str::from_utf8(&self.value) {
            Ok(text) => {
                map.serialize_entry("value", text)?;
                map.serialize_entry("value_encoding", "text")?;
            }
            Err(_) => {
                map.serialize_entry("value", &STANDARD.encode(&self.value))?;
                map.serialize_entry("value_encoding", "base64")?;
            }
        }
        map.serialize_entry("version", &self.version)?;
        map.serialize_entry("created_at", &self.created_at)?;
        map.serialize_entry("expires_at", &self.expires_at)?;
        map.end()
    }
}

/// The value as a terminal may show it, lines after the first behind `indent`; what is no text as base64.
fn on_terminal(value: &[u8], indent: &str) -> String {
    lines_of_text(value, indent).unwrap_or_else(|| STANDARD.encode(value))
}

show!(KvEntry, |entry, out| writeln!(out, "{}", on_terminal(&entry.value, "")));
show!(KvSet, |set, out| writeln!(out, "{}", set.version));
show!(KvDeleted, |answer, out| match answer.deleted {
    true => writeln!(out, "deleted {}", printable(&answer.key)),
    false => writeln!(out, "{} had no value", printable(&answer.key)),
});
show!(KvExists, |answer, out| writeln!(out, "{}", answer.exists));
show!(KvKey, |answer, out| writeln!(out, "{}", printable(&answer.key)));
show!(KvExpires, |answer, out| match answer.found {
    true => writeln!(out, "changed {}", printable(&answer.key)),
    false => writeln!(out, "{} has no value", printable(&answer.key)),
});
show!(KvIncremented, |answer, out| writeln!(out, "{}", answer.value));
show!(KvFlushed, |answer, out| writeln!(
    out,
    "removed {}",
    count(answer.removed, "key")
));
show!(KvStats, |stats, out| {
    let Some(figures) = &stats.figures else {
        return writeln!(out, "there is no cache on this node");
    };
    let rows: [(&str, &dyn Display); 8] = [
        ("keys", &figures.keys),
        ("bytes", &figures.bytes),
        ("hits", &figures.hits),
        ("misses", &figures.misses),
        ("sets", &figures.sets),
        ("deletes", &figures.deletes),
        ("expired", &figures.expired),
        ("evicted", &figures.evicted),
    ];
    pairs(&rows, out)
});
show!(KvChange, |change, out| match change {
    KvChange::Put(entry) => writeln!(
        out,
        "put {} {}",
        printable(&entry.key),
        on_terminal(&entry.value, "    ")
    ),
    KvChange::Removed { key, .. } => writeln!(out, "removed {}", printable(key)),
    KvChange::Flushed { .. } => writeln!(out, "flushed"),
    KvChange::Ready { .. } => writeln!(out, "ready"),
});

#[cfg(test)]
mod tests {
    use super::super::tests::shown;
    use super::*;
    use crate::args::Format;

    fn entry(value: &'static [u8]) -> KvEntry {
        KvEntry::from(pb::Entry {
            key: "k\u{1b}".into(),
            value: Bytes::from_static(value),
            version: 7,
            created_at: Some(prost_types::Timestamp::default()),
            expires_at: None,
        })
    }

    #[test]
    fn a_value_is_shown_as_it_is_if_a_terminal_can_show_it() {
        for (value, table) in [
            (&b"text"[..], "text\n"),
            (b"two\nlines", "two\nlines\n"),
            (b"\x1b[2J", "G1sySg==\n"),
            (b"\xff\x00", "/wA=\n"),
            (b"", "\n"),
        ] {
            assert_eq!(shown(Format::Table, &entry(value)), table);
        }
        let change = KvChange::Put(entry(b"two\nlines"));
        assert_eq!(shown(Format::Table, &change), "put k\\u{1b} two\n    lines\n");
    }

    #[test]
    fn json_has_the_names_of_the_api_and_says_how_a_value_is_encoded() {
        let line = r#"{"key":"k\u001b","value":"text","value_encoding":"text","version":7,"#;
        let end = r#""created_at":"1970-01-01T00:00:00Z","expires_at":null}"#;
        assert_eq!(shown(Format::Json, &entry(b"text")), format!("{line}{end}\n"));
        let bytes = shown(Format::Json, &entry(b"\xff\x00"));
        assert!(bytes.contains(r#""value":"/wA=","value_encoding":"base64""#), "{bytes}");
        let put = shown(Format::Json, &KvChange::Put(entry(b"")));
        assert!(put.starts_with(r#"{"event":"put","key":"#), "{put}");
        let flushed = KvChange::Flushed { version: 3 };
        assert_eq!(shown(Format::Json, &flushed), "{\"event\":\"flushed\",\"version\":3}\n");
        let off = KvStats::from(pb::GetStatsResponse::default());
        assert_eq!(shown(Format::Json, &off), "{\"enabled\":false}\n");
    }
}
