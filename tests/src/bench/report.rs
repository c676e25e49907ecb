//! The table, and the same as JSON.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::load::{Failure, Figure};
use super::rows::Row;

/// Whether a target was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Pass,
    Miss,
    /// There is no target.
    None,
}

impl Verdict {
    pub(super) fn of(reached: bool) -> Self {
        if reached { Self::Pass } else { Self::Miss }
    }
}

/// One line: what people read, and the figures behind it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Line {
    pub(super) row: Row,
    pub(super) work: &'static str,
    #[serde(skip)]
    pub(super) broker: String,
    #[serde(skip)]
    pub(super) bare: String,
    #[serde(skip)]
    pub(super) ratio: String,
    pub(super) target: String,
    pub(super) verdict: Verdict,
    #[serde(flatten)]
    pub(super) data: Value,
}

impl Line {
    /// A rate beside the rate of the bare transport.
    pub(super) fn rates(
        row: Row,
        work: &'static str,
        runs: &[Figure],
        (broker, bare): (Figure, Figure),
        (target, verdict): (String, Verdict),
    ) -> Self {
        let ratio = broker.rate / bare.rate;
        let rates: Vec<f64> = runs.iter().map(|figure| figure.rate.round()).collect();
        Self {
            row,
            work,
            broker: rate(broker),
            bare: rate(bare),
            ratio: format!("{:.1} %", ratio * 100.0),
            target,
            verdict,
            data: json!({"broker": broker, "bare": bare, "ratio": ratio, "broker_runs": rates}),
        }
    }

    /// A figure that has nothing beside it.
    pub(super) fn alone(
        row: Row,
        work: &'static str,
        shown: String,
        target: String,
        reached: bool,
        value: f64,
    ) -> Self {
        Self {
            row,
            work,
            broker: shown,
            bare: String::new(),
            ratio: String::new(),
            target,
            verdict: Verdict::of(reached),
            data: json!({"value": value}),
        }
    }
}

/// Collects lines; prints each at once if people wait for it.
pub(super) struct Report {
    runs: u32,
    measure: Duration,
    print: bool,
    load_before: String,
    lines: Vec<Line>,
}

impl Report {
    pub(super) fn new(runs: u32, measure: Duration, print: bool) -> Self {
        let load_before = load_average();
        if print {
            println!("medians of {runs} runs of {measure:?}; in parentheses: processor time of the server per message");
            println!(
                "load average of the machine before: {load_before}; only an idle machine gives figures that can be compared\n"
            );
            print_columns(["work", "broker", "bare or single node", "ratio", "target", "result"]);
        }
        Self {
            runs,
            measure,
            print,
            load_before,
            lines: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, line: Line) {
        if self.print {
            let result = match line.verdict {
                Verdict::Pass => "pass",
                Verdict::Miss => "MISS",
                Verdict::None => "",
            };
            print_columns([line.work, &line.broker, &line.bare, &line.ratio, &line.target, result]);
        }
        self.lines.push(line);
    }

    pub(super) fn print_json(&self) -> Result<(), Failure> {
        let cores = std::thread::available_parallelism()?.get();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let report = json!({
            "cores": cores,
            "kernel": kernel.trim(),
            "runs": self.runs,
            "load_average_before": self.load_before,
            "seconds_per_run": self.measure.as_secs_f64(),
            "lines": self.lines,
        });
        println!("{report}");
        Ok(())
    }
}

/// Of the last minute: who else worked here when the measurement began.
fn load_average() -> String {
    let averages = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    averages.split(' ').next().unwrap_or_default().to_owned()
}

fn print_columns([work, broker, bare, ratio, target, result]: [&str; 6]) {
    println!("{work:<47} {broker:>24} {bare:>24} {ratio:>17} {target:>28}  {result}");
}

/// The middle one; of an even number, the lower of the two in the middle.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

/// 1234567.8 as "1,234,568".
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Messages per second, and in parentheses the processor time of each.
pub(super) fn rate(figure: Figure) -> String {
    format!("{}/s ({:.2} us)", thousands(figure.rate), figure.server_cpu_us)
}

pub(super) fn us(us: f64) -> String {
    format!("{us:.0} us")
}

pub(super) fn ms(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_slow_run_does_not_move_the_median() {
        assert_eq!(median([5.0, 1.0, 3.0].into_iter()), 3.0);
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.0);
    }

    #[test]
    fn large_numbers_are_grouped_by_thousands() {
        assert_eq!(
            [7.0, 999.6, 1000.0, 1_234_567.8].map(thousands),
            ["7", "1,000", "1,000", "1,234,568"]
        );
    }
}
