//! Text for people: aligned, and safe to show on a terminal whatever a publisher put into a message.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::plain::{directed, printable};
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

/// One `name  value` a line, the values aligned and printable.
pub(super) fn pairs(rows: &[(&str, &dyn Display)], out: &mut dyn Write) -> io::Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    rows.iter()
        .try_for_each(|(name, value)| writeln!(out, "{name:width$}  {}", printable(&value.to_string())))
}

/// Columns of numbers to the right, others to the left, all printable. No header without rows.
pub(super) fn columns<const N: usize>(header: [&str; N], rows: &[[String; N]], out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let rows = rows.iter();
    let rows: Vec<[Cow<'_, str>; N]> = rows.map(|row| row.each_ref().map(|cell| printable(cell))).collect();
    let header = header.map(Cow::Borrowed);
    let width: [usize; N] = std::array::from_fn(|i| {
        let cells = rows.iter().chain([&header]);
        cells.map(|row| row[i].chars().count()).max().unwrap_or_default()
    });
    let is_number = |cell: &str| !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit());
    let numbers: [bool; N] = std::array::from_fn(|i| i > 0 && rows.iter().all(|row| is_number(&row[i])));
    for row in [&header].into_iter().chain(&rows) {
        for (i, cell) in row.iter().enumerate() {
            let gap = if i > 0 { "  " } else { "" };
            let width = width[i];
            match numbers[i] {
                true => write!(out, "{gap}{cell:>width$}")?,
                // Nothing behind the last one.
                false if i + 1 == N => write!(out, "{gap}{cell}")?,
                false => write!(out, "{gap}{cell:width$}")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
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
        content_type,
        headers,
        payload,
    } = message;
    writeln!(out, "id        {}", message_id.0)?;
    writeln!(out, "attempts  {attempts}")?;
    if *priority != 0 {
        writeln!(out, "priority  {priority}")?;
    }
    writeln!(out, "published {published_at}")?;
    if let Some(expires_at) = expires_at {
        writeln!(out, "expires   {expires_at}")?;
    }
    if !content_type.is_empty() {
        writeln!(out, "type      {}", printable(content_type))?;
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

/// Bytes that a terminal shows as they are. Control characters could move its cursor and hide what was printed. Lines after
/// the first stand behind `indent`, below it, so that none can pass for one of ours.
pub(super) fn lines_of_text(bytes: &[u8], indent: &str) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.replace("\r\n", "\n");
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars()
        .all(is_text)
        .then(|| directed(&text).replace('\n', &format!("\n{indent}")))
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

/// `1 message`, `2 messages`; `noun` is in the singular, as in "dead letter".
pub(super) fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// `2d 3h 4m 5s`, from the largest unit that is not 0; nothing below seconds.
pub(super) fn days_to_seconds(seconds: i64) -> String {
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let first = parts
        .iter()
        .position(|(number, _)| *number != 0)
        .unwrap_or(parts.len() - 1);
    let shown = parts[first..].iter().map(|(number, unit)| format!("{number}{unit}"));
    shown.collect::<Vec<_>>().join(" ")
}

/// Bytes in the largest unit that leaves a number of at least 1, cut to one decimal.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} B"),
    }
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
        let text = shown(Format::Table, &message);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(text.contains("base64    G1sySg==\n"), "{text}");
        assert!(text.contains("header    evil\\r=\\u{1b}]0;\\u{9b}\n"), "{text}");
    }

    #[test]
    fn what_sets_the_direction_of_text_is_escaped_wherever_it_stands() {
        let trick = "pay\u{202e}eid";
        let mut message = delivered();
        message.payload.bytes = Bytes::from_static(trick.as_bytes());
        message.headers.insert(trick.into(), trick.into());
        message.content_type = trick.into();
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

    #[test]
    fn times_start_with_their_largest_unit() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m 0s"),
            (3_605, "1h 0m 5s"),
            (183_845, "2d 3h 4m 5s"),
        ] {
            assert_eq!(days_to_seconds(seconds), text);
        }
    }

    #[test]
    fn sizes_are_cut_to_one_decimal() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_300_000, "1.2 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
