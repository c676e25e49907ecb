//! What a queue has of its own, with the names of `boltq.queue.v1.QueueSettings`. What it leaves to the server is left out.

use std::io::{self, Write};

use boltq_proto::queue::v1::{OverflowPolicy, QueueSettings};
use serde::{Serialize, Serializer};

use super::amounts::count;
use super::plain::printable;
use super::{Show, json};

#[derive(Debug, Clone, Default)]
pub(crate) struct Settings(Vec<(&'static str, serde_json::Value)>);

impl From<QueueSettings> for Settings {
    fn from(settings: QueueSettings) -> Self {
        let QueueSettings {
            max_retry,
            retry_backoff,
            retry_backoff_max,
            ack_timeout,
            default_ttl,
            max_length,
            max_length_bytes,
            overflow,
            dead_letter_queue,
            dedup_ttl,
            single_active_consumer,
            paused,
        } = settings;
        // As protobuf has durations in JSON: seconds with a unit.
        let duration = |duration: Option<prost_types::Duration>| Some(duration?.to_string().into());
        let drops = overflow == i32::from(OverflowPolicy::DropOldest);
        let all: [(&str, Option<serde_json::Value>); 12] = [
            ("max_retry", max_retry.map(Into::into)),
            ("retry_backoff", duration(retry_backoff)),
            ("retry_backoff_max", duration(retry_backoff_max)),
            ("ack_timeout", duration(ack_timeout)),
            ("default_ttl", duration(default_ttl)),
            ("max_length", max_length.map(Into::into)),
            ("max_length_bytes", max_length_bytes.map(Into::into)),
            ("overflow", drops.then(|| "DROP_OLDEST".into())),
            (
                "dead_letter_queue",
                Some(dead_letter_queue).filter(|name| !name.is_empty()).map(Into::into),
            ),
            ("dedup_ttl", duration(dedup_ttl)),
            ("single_active_consumer", single_active_consumer.then(|| true.into())),
            ("paused", paused.then(|| true.into())),
        ];
        let set = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
        Self(set.collect())
    }
}

impl Settings {
    /// Each with its name, for people.
    pub(super) fn rows(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name.replace('_', " "), text)
        })
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// A queue was deleted.
#[derive(Debug, Serialize)]
pub(crate) struct DeletedQueue<'a> {
    pub(crate) queue: &'a str,
    pub(crate) deleted_messages: u64,
}

impl Show for DeletedQueue<'_> {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let messages = count(self.deleted_messages, "message");
        writeln!(out, "deleted {} with {messages}", printable(self.queue))
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shown;
    use super::*;
    use crate::args::Format;

    #[test]
    fn only_what_a_queue_has_of_its_own_is_shown() {
        assert_eq!(Settings::from(QueueSettings::default()).rows().count(), 0);
        let settings = QueueSettings {
            max_retry: Some(0),
            ack_timeout: Some(prost_types::Duration {
                seconds: 1,
                nanos: 500_000_000,
            }),
            overflow: OverflowPolicy::DropOldest.into(),
            dead_letter_queue: "morgue".to_owned(),
            ..QueueSettings::default()
        };
        let settings = Settings::from(settings);
        let json = r#"{"max_retry":0,"ack_timeout":"1.500s","overflow":"DROP_OLDEST","dead_letter_queue":"morgue"}"#;
        assert_eq!(serde_json::to_string(&settings).unwrap(), json);
        let rows: Vec<_> = settings
            .rows()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        assert_eq!(
            rows,
            [
                "max retry: 0",
                "ack timeout: 1.500s",
                "overflow: DROP_OLDEST",
                "dead letter queue: morgue"
            ]
        );
    }

    #[test]
    fn a_deleted_queue_says_what_went_with_it() {
        let deleted = DeletedQueue {
            queue: "a",
            deleted_messages: 1,
        };
        assert_eq!(shown(Format::Table, &deleted), "deleted a with 1 message\n");
        assert_eq!(
            shown(Format::Json, &deleted),
            "{\"queue\":\"a\",\"deleted_messages\":1}\n"
        );
    }
}
