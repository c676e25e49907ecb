//! Text for people: aligned, and safe to show on a terminal whatever a publisher put into a message.

use std::fmt::Display;
use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::amounts::{count, days_to_seconds, size};
use super::layout::{columns, lines_of_text, pairs};
use super::plain::printable;
use super::{
    BulkPublished, Delivered, Extended, Health, Published, PublishedId, Purged, Queue, Queues, Redriven, Settled, Show,
    Stats, Storage, json,
};

/// The table is given, the JSON is the one line that serde makes of the fields.
macro_rules! show {
    ($type:ty, $table:expr) => {
        impl Show for $type {
            fn table(&self, out: &mut dyn Write) -> io::Result<()> {
                let table: fn(&Self, &mut dyn Write) -> io::Result<()> = $table;
                table(self, out)
            }

            fn json(&self, out: &mut dyn Write) -> io::Result<()> {
                json::line(self, out)
            }
        }
    };
}

pub(super) use show;

show!(Published<'_>, |published, out| writeln!(
    out,
    "{}",
    published.message_id.0
));
show!(PublishedId, |published, out| writeln!(
    out,
    "{}",
    published.message_id.0
));
show!(Health, |health, out| writeln!(out, "{}", health.status));
show!(BulkPublished<'_>, |bulk, out| {
    let BulkPublished {
        queue,
        published,
        refused,
        seconds,
    } = bulk;
    write!(
        out,
        "published {} to {} in {seconds:.2} s",
        count(*published, "message"),
        printable(queue)
    )?;
    match refused {
        0 => writeln!(out),
        _ => writeln!(out, ", refused {refused}"),
    }
});
show!(Purged<'_>, |purged, out| {
    let Purged { what, queue, purged } = purged;
    writeln!(out, "purged {} from {}", count(*purged, what), printable(queue))
});
show!(Redriven<'_>, |done, out| {
    let Redriven { queue, redriven } = done;
    writeln!(
        out,
        "sent {} back to {}",
        count(*redriven, "dead letter"),
        printable(queue)
    )
});
show!(Settled, |settled, out| writeln!(
    out,
    "{} {}",
    settled.verb,
    count(settled.settled, "message")
));
show!(Extended, |extended, out| writeln!(
    out,
    "extended {}",
    count(extended.extended, "lease")
));
show!(Delivered, delivered);
show!(Stats, stats);
show!(Queue, |queue, out| {
    let labels = ["name", "ready", "leased", "delayed", "dead letters", "consumers"];
    let cells = queue.cells();
    let own: Vec<_> = queue.settings.rows().collect();
    let cells = labels.into_iter().zip(cells.iter().map(|cell| cell as &dyn Display));
    let own = own.iter().map(|(name, value)| (name.as_str(), value as &dyn Display));
    pairs(&cells.chain(own).collect::<Vec<_>>(), out)
});

impl Queue {
    /// All that is shown of a queue, in its order.
    fn cells(&self) -> [String; 6] {
        let Self {
            name,
            ready,
            leased,
            delayed,
            dead_letters,
            consumers,
            settings: _,
        } = self;
        [name as &dyn Display, ready, leased, delayed, dead_letters, consumers].map(ToString::to_string)
    }
}

impl Show for Queues {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let header = ["QUEUE", "READY", "LEASED", "DELAYED", "DEAD LETTERS", "CONSUMERS"];
        let rows: Vec<_> = self.0.iter().map(Queue::cells).collect();
        columns(header, &rows, out)
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        self.0.iter().try_for_each(|queue| json::line(queue, out))
    }
}

/// A block of lines; an empty line ends it.
fn delivered(message: &Delivered, out: &mut dyn Write) -> io::Result<()> {
    let Delivered {
        delivery_token: _,
        message_id,
        attempts,
        priority,
        published_at,
        expires_at,
        deliver_at,
        content_type,
        ordering_key,
        headers,
        payload,
    } = message;
    writeln!(out, "id        {}", message_id.0)?;
    writeln!(out, "attempts  {attempts}")?;
    if *priority != 0 {
        writeln!(out, "priority  {priority}")?;
    }
    writeln!(out, "published {published_at}")?;
    if let Some(deliver_at) = deliver_at {
        writeln!(out, "due       {deliver_at}")?;
    }
    if let Some(expires_at) = expires_at {
        writeln!(out, "expires   {expires_at}")?;
    }
    if !content_type.is_empty() {
        writeln!(out, "type      {}", printable(content_type))?;
    }
    if !ordering_key.is_empty() {
        writeln!(out, "key       {}", printable(ordering_key))?;
    }
    for (key, value) in headers {
        writeln!(out, "header    {}={}", printable(key), printable(value))?;
    }
    match lines_of_text(&payload.bytes, "          ") {
        Some(text) => writeln!(out, "payload   {text}")?,
        None => writeln!(out, "base64    {}", STANDARD.encode(&payload.bytes))?,
    }
    writeln!(out)
}

fn stats(stats: &Stats, out: &mut dyn Write) -> io::Result<()> {
    let Stats {
        queues,
        dead_letters,
        pending,
        delayed,
        published,
        consumed,
        acked,
        nacked,
        expired,
        dead_lettered,
        dropped,
        rejected,
        uptime,
        version,
        storage: Storage { mode, bytes, writable },
    } = stats;
    let storage = format!(
        "{mode}, {}{}",
        size(*bytes),
        if *writable { "" } else { ", full: not writable" }
    );
    let uptime = days_to_seconds(uptime.seconds);
    let rows: [(&str, &dyn Display); 13] = [
        ("version", version),
        ("uptime", &uptime),
        ("storage", &storage),
        ("published", published),
        ("consumed", consumed),
        ("acked", acked),
        ("nacked", nacked),
        ("expired", expired),
        ("dead lettered", dead_lettered),
        ("dropped", dropped),
        ("rejected", rejected),
        ("pending", pending),
        ("delayed", delayed),
    ];
    pairs(&rows, out)?;
    for (header, counts) in [(["QUEUE", "READY"], queues), (["DEAD LETTERS", "READY"], dead_letters)] {
        if !counts.is_empty() {
            writeln!(out)?;
        }
        let rows = counts.iter().map(|(name, count)| [name.clone(), count.to_string()]);
        columns(header, &rows.collect::<Vec<_>>(), out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;

    use super::super::Settings;
    use super::super::tests::{delivered, shown};
    use super::*;
    use crate::args::Format;

    fn queue(name: &str, ready: u64) -> Queue {
        Queue {
            name: name.into(),
            ready,
            leased: 0,
            delayed: 0,
            dead_letters: 0,
            consumers: 1,
            settings: Settings::default(),
        }
    }

    #[test]
    fn a_message_is_a_block_that_ends_with_an_empty_line() {
        let expected = "\
id        000102030405060708090a0b0c0d0e0f
attempts  2
published 2025-01-01T00:00:00Z
header    a=1
header    b=2
payload   hello

";
        assert_eq!(shown(Format::Table, &delivered()), expected);
    }

    #[test]
    fn nothing_that_a_publisher_sends_reaches_the_terminal_as_a_control_character() {
        let mut message = delivered();
        message.payload.bytes = Bytes::from_static(b"\x1b[2J");
        message.headers.insert("evil\r".into(), "\x1b]0;\u{9b}".into());
        message.content_type = "a\nb".into();
        message.ordering_key = "\u{1b}k".into();
        let text = shown(Format::Table, &message);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(text.contains("base64    G1sySg==\n"), "{text}");
        assert!(text.contains("key       \\u{1b}k\n"), "{text}");
        assert!(text.contains("header    evil\\r=\\u{1b}]0;\\u{9b}\n"), "{text}");
    }

    #[test]
    fn what_sets_the_direction_of_text_is_escaped_wherever_it_stands() {
        let trick = "pay\u{202e}eid";
        let mut message = delivered();
        message.payload.bytes = Bytes::from_static(trick.as_bytes());
        message.headers.insert(trick.into(), trick.into());
        message.content_type = trick.into();
        message.ordering_key = trick.into();
        let stats = Stats {
            queues: [(trick.to_owned(), 1)].into(),
            version: trick.into(),
            ..stats_of_nothing()
        };
        let purged = Purged {
            what: "message",
            queue: trick,
            purged: 1,
        };
        let bulk = BulkPublished {
            queue: trick,
            published: 1,
            refused: 0,
            seconds: 1.0,
        };
        for text in [
            shown(Format::Table, &message),
            shown(Format::Table, &queue(trick, 1)),
            shown(Format::Table, &Queues(vec![queue(trick, 1)])),
            shown(Format::Table, &stats),
            shown(Format::Table, &purged),
            shown(Format::Table, &bulk),
        ] {
            assert!(text.is_ascii() && text.contains("pay\\u{202e}eid"), "{text:?}");
        }
    }

    fn stats_of_nothing() -> Stats {
        Stats {
            queues: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            pending: 0,
            delayed: 0,
            published: 0,
            consumed: 0,
            acked: 0,
            nacked: 0,
            expired: 0,
            dead_lettered: 0,
            dropped: 0,
            rejected: 0,
            uptime: prost_types::Duration::default(),
            version: String::new(),
            storage: Storage {
                mode: String::new(),
                bytes: 0,
                writable: true,
            },
        }
    }

    #[test]
    fn no_line_of_a_payload_can_pass_for_one_of_ours() {
        let mut message = delivered();
        message.payload.bytes = Bytes::from_static(b"one\r\n\ttwo\nid        0");
        let text = shown(Format::Table, &message);
        assert!(
            text.ends_with("payload   one\n          \ttwo\n          id        0\n\n"),
            "{text}"
        );
        message.payload.bytes = Bytes::from_static(b"seen\rhides");
        assert!(shown(Format::Table, &message).contains("base64    "));
    }

    #[test]
    fn payloads_that_are_not_text_are_base64_and_say_so() {
        let mut message = delivered();
        message.payload.bytes = Bytes::from_static(b"\xff");
        assert!(shown(Format::Table, &message).contains("base64    /w==\n"));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_in_characters() {
        let queues = Queues(vec![queue("größe", 7), queue("a_long_name", 123_456)]);
        let expected = "\
QUEUE         READY  LEASED  DELAYED  DEAD LETTERS  CONSUMERS
größe             7       0        0             0          1
a_long_name  123456       0        0             0          1
";
        assert_eq!(shown(Format::Table, &queues), expected);
        assert_eq!(shown(Format::Table, &Queues(Vec::new())), "");
    }

    #[test]
    fn numbers_come_with_the_right_noun() {
        let purged = |purged, what| {
            shown(
                Format::Table,
                &Purged {
                    what,
                    queue: "jobs",
                    purged,
                },
            )
        };
        assert_eq!(purged(1204, "message"), "purged 1204 messages from jobs\n");
        assert_eq!(purged(1, "dead letter"), "purged 1 dead letter from jobs\n");
        assert_eq!(purged(0, "message"), "purged 0 messages from jobs\n");
    }
}
