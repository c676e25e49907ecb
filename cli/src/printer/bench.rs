//! What a load measured.

use std::fmt::Write as _;
use std::io::{self, Write};

use boltq_load::{Latency, Rate, Report};
use serde::Serialize;

use super::plain::printable;
use super::table::show;
use super::{Show, json};

/// A report, with the name of the queue.
#[derive(Debug, Serialize)]
pub(crate) struct Measured<'a> {
    pub(crate) queue: &'a str,
    #[serde(flatten)]
    pub(crate) report: Report,
}

show!(Measured<'_>, |measured, out| {
    let Report {
        seconds,
        published,
        delivered,
        settled,
        failed,
        reasons,
    } = &measured.report;
    writeln!(out, "queue         {}", printable(measured.queue))?;
    writeln!(out, "measured      {seconds:.1} s")?;
    rate("published", "answered in", published, out)?;
    if let Some(delivered) = delivered {
        rate("delivered", "there in", delivered, out)?;
    }
    if let Some(settled) = settled {
        writeln!(out, "acknowledged  {} messages", grouped(*settled))?;
    }
    if *failed > 0 {
        let reasons: Vec<_> = reasons
            .iter()
            .map(|(reason, messages)| format!("{} {}", printable(reason), grouped(*messages)))
            .collect();
        writeln!(out, "failed        {}: {}", grouped(*failed), reasons.join(", "))?;
    }
    Ok(())
});

fn rate(what: &str, wait: &str, rate: &Rate, out: &mut dyn Write) -> io::Result<()> {
    let per_second = per_second(rate.per_second);
    let megabytes = rate.bytes_per_second / 1e6;
    writeln!(
        out,
        "{what:<13} {} messages, {per_second}, {megabytes:.1} MB/s",
        grouped(rate.messages)
    )?;
    match rate.latency_us {
        None => Ok(()),
        Some(Latency { p50, p99, p99_9, max }) => writeln!(
            out,
            "  {wait:<11} p50 {}, p99 {}, p99.9 {}, max {}",
            time(p50),
            time(p99),
            time(p99_9),
            time(max)
        ),
    }
}

/// `1,235/s`; small rates with a decimal.
pub(crate) fn per_second(rate: f64) -> String {
    match rate {
        rate if rate.abs() >= 99.95 => format!("{}/s", grouped_float(rate)),
        rate => format!("{rate:.1}/s"),
    }
}

fn grouped_float(value: f64) -> String {
    grouped_digits(&format!("{value:.0}"))
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(value: u64) -> String {
    grouped_digits(&value.to_string())
}

fn grouped_digits(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let mut text = sign.to_owned();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three digits, in the unit that suits.
pub(crate) fn time(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1_000.0 => (us, "us"),
        us if us < 1_000_000.0 => (us / 1_000.0, "ms"),
        us => (us / 1_000_000.0, "s"),
    };
    let decimals = match value {
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write!(text, "{value:.decimals$} {unit}");
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::shown;
    use super::*;
    use crate::args::Format;

    fn measured() -> Measured<'static> {
        let latency = Latency {
            p50: 812.4,
            p99: 3_400.0,
            p99_9: 56_000.0,
            max: 1_230_000.0,
        };
        let rate = |messages, latency_us| Rate {
            messages,
            per_second: messages as f64 / 10.0,
            bytes: messages * 256,
            bytes_per_second: messages as f64 * 25.6,
            latency_us,
        };
        Measured {
            queue: "a\u{1b}",
            report: Report {
                seconds: 10.0,
                published: rate(1_234_567, Some(latency)),
                delivered: Some(rate(20, None)),
                settled: Some(19),
                failed: 3,
                reasons: [("QUEUE_FULL".to_owned(), 3)].into(),
            },
        }
    }

    #[test]
    fn a_table_has_rates_and_waiting_times() {
        let table = "\
queue         a\\u{1b}
measured      10.0 s
published     1,234,567 messages, 123,457/s, 31.6 MB/s
  answered in p50 812 us, p99 3.40 ms, p99.9 56.0 ms, max 1.23 s
delivered     20 messages, 2.0/s, 0.0 MB/s
acknowledged  19 messages
failed        3: QUEUE_FULL 3
";
        assert_eq!(shown(Format::Table, &measured()), table);
    }

    #[test]
    fn json_has_one_object() {
        let json: serde_json::Value = serde_json::from_str(&shown(Format::Json, &measured())).unwrap();
        assert_eq!(json["published"]["latency_us"]["p99_9"], 56_000.0);
        assert_eq!(json["delivered"]["latency_us"], serde_json::Value::Null);
        assert_eq!((&json["settled"], &json["failed"]), (&19.into(), &3.into()));
        assert_eq!(json["reasons"]["QUEUE_FULL"], 3);
    }
}
