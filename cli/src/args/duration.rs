//! Durations as people write them: `500ms`, `10s`, `5m`, `1h30m`, `7d`.

use std::time::Duration;

/// Why a text is no duration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DurationError {
    #[error("a duration is a number and a unit, as in 500ms, 10s, 5m, 2h, 1h30m or 7d")]
    NotADuration,
    #[error("the unit is missing; write {0}s or {0}ms")]
    NoUnit(String),
    #[error("unit {0:?} is unknown; there are ms, s, m, h and d")]
    UnknownUnit(String),
    #[error("too long")]
    TooLong,
}

/// Whole numbers with units, largest first by habit but in any order; `0` needs no unit.
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(DurationError::NotADuration);
    }
    let mut total_ms: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = split_before(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_before(after, |c| c.is_ascii_digit());
        let number_value: u64 = number.parse().map_err(|_| DurationError::TooLong)?;
        let part_ms = number_value
            .checked_mul(unit_ms(unit, number)?)
            .ok_or(DurationError::TooLong)?;
        total_ms = total_ms.checked_add(part_ms).ok_or(DurationError::TooLong)?;
        rest = after;
    }
    Ok(Duration::from_millis(total_ms))
}

fn split_before(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

fn unit_ms(unit: &str, number: &str) -> Result<u64, DurationError> {
    match unit {
        "ms" => Ok(1),
        "s" => Ok(1_000),
        "m" => Ok(60_000),
        "h" => Ok(3_600_000),
        "d" => Ok(86_400_000),
        "" => Err(DurationError::NoUnit(number.to_owned())),
        unit => Err(DurationError::UnknownUnit(unit.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_added_up() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1m500ms", 60_500),
            ("7d", 604_800_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_a_way_out() {
        assert_eq!(parse(""), Err(DurationError::NotADuration));
        assert_eq!(parse("soon"), Err(DurationError::NotADuration));
        assert_eq!(parse("-5s"), Err(DurationError::NotADuration));
        assert_eq!(parse("10"), Err(DurationError::NoUnit("10".into())));
        assert_eq!(parse("1h30"), Err(DurationError::NoUnit("30".into())));
        assert_eq!(parse("10 s"), Err(DurationError::UnknownUnit(" s".into())));
        assert_eq!(parse("1.5s"), Err(DurationError::UnknownUnit(".".into())));
        assert_eq!(parse("99999999999999999999s"), Err(DurationError::TooLong));
        assert_eq!(parse("18446744073709551615d"), Err(DurationError::TooLong));
    }
}
