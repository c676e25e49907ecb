//! Numbers, times and sizes with their units, for people.

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
    use super::*;

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
