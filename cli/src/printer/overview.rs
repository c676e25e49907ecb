//! What the queues of a server are doing.
//!
//! Numbers come first in a line and names last: a name may be as long and as wide as it likes, and nothing behind it moves.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde::{Serialize, Serializer};

use super::amounts::{days_to_seconds, size};
use super::bench::{grouped, per_second};
use super::plain::printable;
use super::{Show, Storage, json};

/// A server at one moment, and what changed since another.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Overview {
    /// Its address.
    pub(crate) server: String,
    pub(crate) version: String,
    pub(crate) uptime_seconds: i64,
    pub(crate) storage: Storage,
    /// `None`: it is no member of one.
    pub(crate) cluster: Option<Leadership>,
    pub(crate) ready: u64,
    pub(crate) leased: u64,
    pub(crate) delayed: u64,
    pub(crate) dead_letters: u64,
    /// `None` at the first look.
    pub(crate) per_second: Option<Rates>,
    /// All that the server has.
    pub(crate) queue_count: u64,
    /// The first ones, in the order that was asked for.
    pub(crate) queues: Vec<Row>,
    /// There are more of those that were asked for.
    pub(crate) more_queues: bool,
}

/// Who answers and who leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Leadership {
    pub(crate) node: String,
    /// `None`: nobody is known to.
    pub(crate) leader: Option<String>,
}

/// Messages each second, over all queues.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Rates {
    pub(crate) published: f64,
    pub(crate) consumed: f64,
    pub(crate) acked: f64,
    pub(crate) nacked: f64,
    pub(crate) expired: f64,
    pub(crate) dead_lettered: f64,
}

/// A queue.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ready: u64,
    pub(crate) leased: u64,
    pub(crate) delayed: u64,
    pub(crate) dead_letters: u64,
    pub(crate) consumers: u32,
    /// Messages that it has more or less each second. `None` at the first look.
    #[serde(serialize_with = "short_float")]
    pub(crate) change_per_second: Option<f64>,
}

fn short_float<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value
        .map(|value| (value * 1_000.0).round() / 1_000.0)
        .serialize(serializer)
}

impl Row {
    /// All that wait or are held.
    pub(crate) fn depth(&self) -> u64 {
        self.ready.saturating_add(self.leased).saturating_add(self.delayed)
    }

    /// As it is shown.
    pub(crate) fn line(&self) -> String {
        let change = match self.change_per_second {
            None => "-".to_owned(),
            Some(change) if change.abs() < 0.05 => "0".to_owned(),
            Some(change) if change.abs() < 100.0 => format!("{change:+.1}"),
            Some(change) => format!("{}{}", if change < 0.0 { "-" } else { "+" }, short(change.abs())),
        };
        format!(
            "{:>9} {change:>9} {:>9} {:>8} {:>8} {:>8} {:>5}  {}",
            short(self.depth() as f64),
            short(self.ready as f64),
            short(self.leased as f64),
            short(self.delayed as f64),
            short(self.dead_letters as f64),
            short(f64::from(self.consumers)),
            printable(&self.name)
        )
    }
}

impl Overview {
    /// Above the lines of queues.
    pub(crate) const COLUMNS: &str = "    DEPTH  CHANGE/S     READY   LEASED  DELAYED     DEAD  CONS  QUEUE";

    /// What is true of the server as a whole: three lines.
    pub(crate) fn head(&self) -> Vec<String> {
        let full = if self.storage.writable { "" } else { " FULL" };
        let cluster = match &self.cluster {
            None => String::new(),
            Some(Leadership {
                node,
                leader: Some(leader),
            }) => format!("  node {node}, led by {leader}"),
            Some(Leadership { node, leader: None }) => format!("  node {node}, NO LEADER"),
        };
        let first = format!(
            "boltq {} at {}  up {}  {} {}{full}{cluster}",
            self.version,
            self.server,
            days_to_seconds(self.uptime_seconds),
            self.storage.mode,
            size(self.storage.bytes)
        );
        let totals = format!(
            "ready {}  leased {}  delayed {}  dead letters {}  queues {}",
            grouped(self.ready),
            grouped(self.leased),
            grouped(self.delayed),
            grouped(self.dead_letters),
            grouped(self.queue_count)
        );
        let speeds = match &self.per_second {
            None => "rates come with the second look".to_owned(),
            Some(rates) => speeds(rates),
        };
        vec![printable(&first).into_owned(), speeds, totals]
    }

    /// Below the queues, if not all are there.
    pub(crate) fn more(&self) -> Option<String> {
        self.more_queues.then(|| {
            format!(
                "there are more queues; these are the first {}",
                grouped(self.queues.len() as u64)
            )
        })
    }
}

impl Show for Overview {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = self.head();
        lines.push(String::new());
        lines.push(Self::COLUMNS.to_owned());
        lines.extend(self.queues.iter().map(Row::line));
        lines.extend(self.more());
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}

fn speeds(rates: &Rates) -> String {
    let Rates {
        published,
        consumed,
        acked,
        nacked,
        expired,
        dead_lettered,
    } = *rates;
    let mut line = format!(
        "published {}  consumed {}  acked {}  nacked {}",
        per_second(published),
        per_second(consumed),
        per_second(acked),
        per_second(nacked)
    );
    for (name, rate) in [("expired", expired), ("dead-lettered", dead_lettered)] {
        if rate > 0.0 {
            // Writing to a String does not fail.
            let _ = write!(line, "  {name} {}", per_second(rate));
        }
    }
    line
}

/// Whole up to six digits, then `1.2M`.
fn short(value: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")];
    match UNITS.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{:.1}{name}", value / unit),
        None => format!("{value:.0}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::tests::shown;
    use super::*;
    use crate::args::Format;

    /// With queues of this name, number of ready messages and change.
    pub(crate) fn overview(queues: &[(&str, u64, f64)]) -> Overview {
        Overview {
            server: "localhost:9091".to_owned(),
            version: "0.1.0".to_owned(),
            uptime_seconds: 3_723,
            storage: Storage {
                mode: "disk".to_owned(),
                bytes: 33_554_432,
                writable: true,
            },
            cluster: None,
            ready: 1,
            leased: 2,
            delayed: 3,
            dead_letters: 4,
            per_second: None,
            queue_count: queues.len() as u64,
            queues: queues
                .iter()
                .map(|(name, ready, change)| Row {
                    name: (*name).to_owned(),
                    ready: *ready,
                    leased: 0,
                    delayed: 0,
                    dead_letters: 0,
                    consumers: 0,
                    change_per_second: Some(*change),
                })
                .collect(),
            more_queues: false,
        }
    }

    #[test]
    fn a_frame_for_a_pipe_has_everything() {
        let mut overview = overview(&[("jobs", 12_345_678, -1_234.5), ("a\u{1b}[2J", 3, 0.0)]);
        overview.queues[0].leased = 7;
        overview.cluster = Some(Leadership {
            node: "n1".to_owned(),
            leader: Some("n2".to_owned()),
        });
        overview.per_second = Some(Rates {
            published: 1_234.0,
            consumed: 2.0,
            acked: 0.0,
            nacked: 0.0,
            expired: 0.0,
            dead_lettered: 1.0,
        });
        let expected = "\
boltq 0.1.0 at localhost:9091  up 1h 2m 3s  disk 32.0 MiB  node n1, led by n2
published 1,234/s  consumed 2.0/s  acked 0.0/s  nacked 0.0/s  dead-lettered 1.0/s
ready 1  leased 2  delayed 3  dead letters 4  queues 2

    DEPTH  CHANGE/S     READY   LEASED  DELAYED     DEAD  CONS  QUEUE
    12.3M     -1234     12.3M        7        0        0     0  jobs
        3         0         3        0        0        0     0  a\\u{1b}[2J
";
        assert_eq!(shown(Format::Table, &overview), expected);
    }

    #[test]
    fn what_is_wrong_is_in_capitals() {
        let mut full = overview(&[]);
        full.storage.writable = false;
        full.cluster = Some(Leadership {
            node: "n1".to_owned(),
            leader: None,
        });
        assert!(
            full.head()[0].ends_with("disk 32.0 MiB FULL  node n1, NO LEADER"),
            "{:?}",
            full.head()
        );
    }

    #[test]
    fn json_is_one_object_with_the_queues_in_it() {
        let line = shown(Format::Json, &overview(&[("a", 3, 0.123_456)]));
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["per_second"], serde_json::Value::Null);
        assert_eq!(json["queues"][0]["name"], "a");
        assert_eq!(json["queues"][0]["change_per_second"], 0.123);
    }
}
