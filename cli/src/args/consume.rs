//! `boltq consume`, `ack`, `nack` and `extend`: messages on their way through a consumer.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use boltq_core::MessageId;
use bytes::Bytes;

use super::duration;
use super::names::queue_name;

/// Longest that a server waits for a message.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(crate) struct Consume {
    /// Name of the queue
    #[arg(long = "queue", visible_alias = "topic", value_name = "QUEUE", value_parser = queue_name)]
    pub(crate) queue: String,
    /// Messages at most [default: 1, with --follow no end]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max: Option<u64>,
    /// Wait so long for the first message, 60s at most
    #[arg(long, value_parser = wait, value_name = "DURATION", conflicts_with = "follow")]
    pub(crate) wait: Option<Duration>,
    /// Length of the leases, 1s to 12h [default: ack_timeout of the queue]
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) lease: Option<Duration>,
    /// Acknowledge messages when they are printed; without it they come again when their lease ends
    #[arg(long)]
    pub(crate) ack: bool,
    /// Print messages as they come; those without an ack go back to the queue at the end
    #[arg(long)]
    pub(crate) follow: bool,
    /// With --follow: messages at most that are not acknowledged
    #[arg(long, value_name = "N", requires = "follow", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) prefetch: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ack {
    #[command(flatten)]
    pub(crate) ids: Ids,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Nack {
    #[command(flatten)]
    pub(crate) ids: Ids,
    /// Deliver them again after this time, 24h at most [default: the backoff of the server]
    #[arg(long, value_parser = duration::parse, value_name = "DURATION", conflicts_with = "dead_letter")]
    pub(crate) delay: Option<Duration>,
    /// Straight to the dead letters, whatever the number of attempts
    #[arg(long)]
    pub(crate) dead_letter: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ids {
    /// Ids of messages, 32 hexadecimal digits each
    #[arg(long = "id", value_name = "ID", required = true, num_args = 1..)]
    pub(crate) ids: Vec<MessageId>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Extend {
    /// The delivery_token of a message, as consume prints it with --output json
    #[arg(long = "token", value_name = "TOKEN", required = true, num_args = 1.., value_parser = token)]
    pub(crate) tokens: Vec<Token>,
    /// New length of the leases from now, 1s to 12h
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) lease: Duration,
}

/// Names a lease; opaque.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) Bytes);

fn token(text: &str) -> Result<Token, String> {
    let token = STANDARD.decode(text).map(|token| Token(token.into()));
    token.map_err(|error| format!("a token is base64: {error}"))
}

fn wait(text: &str) -> Result<Duration, String> {
    let wait = duration::parse(text).map_err(|error| error.to_string())?;
    if wait > WAIT_MAX {
        return Err(format!(
            "{} s is the longest wait; --follow has no end",
            WAIT_MAX.as_secs()
        ));
    }
    Ok(wait)
}
