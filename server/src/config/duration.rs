//! Durations as people write them: `30s`, `1m30s`, `1.5h`, `100ms`.

use std::time::Duration;

/// Units and their nanoseconds, longest first.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads one or more numbers with units, or a bare `0`. `None` if the text is anything else or over 584 years.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanos, behind) = parse_part(rest)?;
        total = total.checked_add(nanos)?;
        rest = behind;
    }
    (!text.is_empty()).then_some(Duration::from_nanos(total))
}

/// One number with its unit, and what follows it.
fn parse_part(text: &str) -> Option<(u64, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() {
        return None;
    }
    let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    let unit = if unit == "µs" { "us" } else { unit };
    let (_, unit_nanos) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    let mut nanos = whole.parse::<u64>().ok()?.checked_mul(unit_nanos)?;
    let mut place = unit_nanos;
    for digit in fraction.bytes() {
        place /= 10;
        nanos = nanos.checked_add(place * u64::from(digit - b'0'))?;
    }
    Some((nanos, rest))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The shortest text that `parse` reads back as `duration`.
pub(crate) fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let unit = UNITS
        .into_iter()
        .find(|(_, unit)| nanos.is_multiple_of(u128::from(*unit)));
    let (name, unit) = unit.unwrap_or(("ns", 1));
    format!("{}{name}", nanos / u128::from(unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_with_units_add_up() {
        for (text, nanos) in [
            ("30s", 30_000_000_000),
            ("168h", 604_800_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("100ms", 100_000_000),
            ("2us", 2_000),
            ("2µs", 2_000),
            ("7ns", 7),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "30",
            "s",
            "-1s",
            "1 s",
            "1d",
            "1s ",
            "1.s.",
            ".5s",
            "99999999999999h",
            "1e3s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos: u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Some(duration));
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = parse(&text);
        }
    }
}
