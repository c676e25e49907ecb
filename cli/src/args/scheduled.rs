//! Messages that are not due yet.

use std::time::Duration;

use boltq_core::MessageId;
use clap::ArgGroup;
use prost_types::Timestamp;

use super::{QueueName, duration};

#[derive(Debug, clap::Args)]
pub(crate) struct Scheduled {
    #[command(flatten)]
    pub(crate) name: QueueName,
    /// Messages at most [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max: Option<u64>,
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("due").required(true).args(["delay", "at"]))]
pub(crate) struct Reschedule {
    /// Id of the message, 32 hexadecimal digits
    #[arg(long, value_name = "ID")]
    pub(crate) id: MessageId,
    /// Deliver it after this time from now: 500ms, 10s, 5m, 1h30m, 7d; 0: at once
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) delay: Option<Duration>,
    /// Deliver it at this time, as in 2026-01-31T08:00:00Z
    #[arg(long, value_parser = time, value_name = "TIME")]
    pub(crate) at: Option<Timestamp>,
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| "a time is written as in 2026-01-31T08:00:00Z or 2026-01-31T08:00:00+01:00".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_date_and_a_zone() {
        assert_eq!(time("1970-01-01T00:01:00Z").unwrap().seconds, 60);
        assert_eq!(time("1970-01-01T01:00:00+01:00").unwrap().seconds, 0);
        for text in ["", "soon", "10s", "2026-13-01T00:00:00Z"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
