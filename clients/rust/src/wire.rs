//! Between the types of the standard library and those of protobuf.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

/// Longer ones are as good as the longest that protobuf can say, 10,000 years.
pub(crate) fn duration(duration: Duration) -> prost_types::Duration {
    const MAX_SECONDS: i64 = 315_576_000_000;
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(MAX_SECONDS);
    match seconds < MAX_SECONDS {
        true => prost_types::Duration {
            seconds,
            nanos: i32::try_from(duration.subsec_nanos()).unwrap_or_default(),
        },
        false => prost_types::Duration {
            seconds: MAX_SECONDS,
            nanos: 0,
        },
    }
}

/// `None` if it is negative or no duration, which servers do not send.
pub(crate) fn from_duration(wire: Option<prost_types::Duration>) -> Option<Duration> {
    wire?.try_into().ok()
}

/// `None` if it is unset or out of range.
pub(crate) fn from_timestamp(wire: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    wire?.try_into().ok()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing into a String does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_survive_the_way_and_the_longest_are_cut() {
        for value in [
            Duration::ZERO,
            Duration::from_millis(150),
            Duration::new(9, 999_999_999),
        ] {
            assert_eq!(from_duration(Some(duration(value))), Some(value));
        }
        assert_eq!(duration(Duration::MAX).seconds, 315_576_000_000);
        let negative = prost_types::Duration { seconds: -1, nanos: 0 };
        assert_eq!(from_duration(Some(negative)), None);
        assert_eq!(hex(&[0, 0xab, 0xff]), "00abff");
    }
}
