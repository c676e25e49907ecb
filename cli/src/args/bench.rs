//! `boltq bench` and `boltq top`.

use std::time::Duration;

use clap::ValueEnum;

use super::names::queue_name;
use super::{AckLevel, duration};

const BATCH_MESSAGES_MAX: i64 = 1_000;
const CONNECTIONS_MAX: i64 = 1_000;
/// Of all messages of a batch, with what is around them: the limit of the server for a request.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What a message costs besides its payload, at most.
const MESSAGE_OVERHEAD_BYTES: usize = 16;
/// In a closed loop, whose messages share what an answer costs.
const BATCH_DEFAULT: u32 = 128;

const BENCH_HELP: &str = "\
Without --rate each publisher sends as fast as answers come, and does not run ahead of the consumers: that shows how much \
the server can take. With --rate messages have a timetable, and a message that could not be sent in time waits since then: \
that shows how long messages take.

A queue that is there must be empty, and is empty afterwards; one that is not is deleted in the end. Times to deliver need payloads of 16 bytes or more.";

/// Load a server with messages of your size and see how fast it is
#[derive(Debug, clap::Args)]
#[command(after_help = BENCH_HELP)]
pub(crate) struct Bench {
    /// Name of the queue
    #[arg(long, default_value = "boltq-bench", value_name = "QUEUE", value_parser = queue_name)]
    pub(crate) queue: String,
    /// Connections that publish
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=CONNECTIONS_MAX))]
    pub(crate) publishers: u32,
    /// Connections that consume and acknowledge; with 0 the messages stay until the end
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=CONNECTIONS_MAX))]
    pub(crate) consumers: u32,
    /// Bytes of a payload
    #[arg(long, default_value_t = 256, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=4_000_000))]
    pub(crate) size: u32,
    /// Messages that are sent at once [default: 128, with --rate 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=BATCH_MESSAGES_MAX))]
    pub(crate) batch: Option<u32>,
    /// Batches of each publisher that may be unanswered
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) outstanding: u32,
    /// Messages each second, of all publishers together [default: as fast as answers come]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// How long to measure
    #[arg(long, default_value = "10s", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) duration: Duration,
    /// How long to load before that
    #[arg(long, default_value = "1s", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) warm_up: Duration,
    /// When a message counts as published [default: quorum]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) ack_level: Option<AckLevel>,
    /// Leave the queue, and messages in it that were not consumed
    #[arg(long)]
    pub(crate) keep: bool,
    /// Also on a queue that is in use; what is in it is consumed with the rest, and nothing is removed at the end
    #[arg(long)]
    pub(crate) force: bool,
}

impl Bench {
    /// Messages in a batch.
    pub(crate) fn batch_messages(&self) -> u32 {
        let default = if self.rate.is_some() { 1 } else { BATCH_DEFAULT };
        let fits = BATCH_BYTES_MAX / (self.size as usize + MESSAGE_OVERHEAD_BYTES);
        self.batch
            .unwrap_or_else(|| default.min(u32::try_from(fits).unwrap_or(u32::MAX)).max(1))
    }

    /// Why the options do not go together.
    pub(crate) fn check(&self) -> Result<(), String> {
        let bytes = (self.size as usize + MESSAGE_OVERHEAD_BYTES) * self.batch_messages() as usize;
        if bytes > BATCH_BYTES_MAX {
            return Err(format!(
                "{} messages of {} bytes are more than a request may have, {BATCH_BYTES_MAX} bytes; give a smaller --batch",
                self.batch_messages(),
                self.size
            ));
        }
        if self.duration.is_zero() {
            return Err("--duration 0 measures nothing".to_owned());
        }
        Ok(())
    }
}

/// See what the queues are doing, again and again
#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    /// Time from one look to the next, 100ms to 1h
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "DURATION")]
    pub(crate) interval: Duration,
    /// Look twice, print what is there, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// What comes first
    #[arg(long, value_enum, default_value_t = Sort::Depth)]
    pub(crate) sort: Sort,
    /// Only queues whose names have this in them
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
}

/// What comes first in a list of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The queue with most messages
    Depth,
    /// The queue that grows or shrinks fastest
    Rate,
    /// By name
    Name,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text).map_err(|error| error.to_string())?;
    match interval.as_millis() {
        100..=3_600_000 => Ok(interval),
        _ => Err("it is 100ms to 1h".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        bench: Bench,
    }

    fn bench(args: &[&str]) -> Bench {
        Only::parse_from([&["bench"], args].concat()).bench
    }

    #[test]
    fn a_batch_is_as_large_as_a_request_may_be() {
        assert_eq!(bench(&[]).batch_messages(), 128);
        assert_eq!(bench(&["--rate", "100"]).batch_messages(), 1);
        assert_eq!(bench(&["--size", "1000000"]).batch_messages(), 4);
        assert_eq!(bench(&["--size", "4000000"]).batch_messages(), 1);
        assert_eq!(bench(&["--size", "4000000"]).check(), Ok(()));
        let too_much = bench(&["--size", "1000000", "--batch", "5"]).check().unwrap_err();
        assert!(too_much.contains("--batch"), "{too_much}");
        assert!(bench(&["--duration", "0"]).check().unwrap_err().contains("--duration"));
    }
}
