//! What a command ends with when it was not done: a sentence for people, and an exit code.

use std::io;
use std::time::Duration;

use boltq_core::MessageId;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::connect::ConnectError;

/// Exit code of what was refused or failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// Exit code of a call that makes no sense, whatever the server says.
pub(crate) const EXIT_USAGE: u8 = 2;

/// Why a command was not done, or not wholly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The environment or the arguments cannot be used.
    #[error("{0}")]
    Usage(String),
    #[error("the async runtime could not start: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The connection ended, or was silent, in the middle of a call.
    #[error("{why}; whether the server carried the call out is unknown")]
    Lost { why: String },
    /// Something listens there, and answers nothing that was asked.
    #[error("{addr} is the admin port of a server, which speaks HTTP; give its messaging port, 9091 by default")]
    AdminPort { addr: String },
    #[error(
        "{addr} does not answer gRPC calls: {why}; give the messaging port of the server, 9091 by default, and \
        {hint}"
    )]
    NotGrpc {
        addr: String,
        why: String,
        hint: &'static str,
    },
    /// The answer breaks the protocol.
    #[error("unexpected answer of the server: {0}; do `boltq` and the server have the same version?")]
    BadAnswer(String),
    #[error("{file}: {error}")]
    Input { file: String, error: io::Error },
    #[error("writing the result: {0}")]
    Output(#[from] io::Error),
    /// Some messages of a bulk publish were refused; each was named on stderr.
    #[error("{refused} of {all} messages were refused")]
    NotAllPublished { refused: u64, all: u64 },
    /// Some of the ids that were to be settled were not.
    #[error("{}", not_settled(.0))]
    NotSettled(Vec<Unsettled>),
    /// Some of the leases that were to be extended were not.
    #[error("{}", not_extended(.0))]
    NotExtended(Vec<NotExtended>),
    /// A load would take the messages of others, and measure them.
    #[error(
        "queue {queue:?} is in use: messages {messages}, consumers {consumers}; give another --queue, or --force to load it \
         all the same"
    )]
    QueueInUse {
        queue: String,
        messages: u64,
        consumers: u32,
    },
    /// The report says why.
    #[error("publishes or acknowledgements that failed: {failed}")]
    LoadFailed { failed: u64 },
    /// A script has to notice that, and not take it for an empty value.
    #[error("{key:?} has no value")]
    NoValue { key: String },
    /// The health check says so.
    #[error("the server is not serving: {0}")]
    NotServing(&'static str),
}

/// A message that could not be settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsettled {
    pub(crate) message_id: MessageId,
    /// As `SettleFailureReason`, without its prefix.
    pub(crate) reason: &'static str,
}

/// A lease that could not be extended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotExtended {
    /// As it was given.
    pub(crate) token: String,
    /// As [`Unsettled::reason`].
    pub(crate) reason: &'static str,
}

fn not_settled(failures: &[Unsettled]) -> String {
    let lines = failures.iter().map(|failure| {
        let Unsettled { message_id, reason } = failure;
        let why = why_not_settled(reason);
        format!("message {message_id} not settled: {why} ({reason})")
    });
    lines.collect::<Vec<_>>().join("\nerror: ")
}

fn not_extended(failures: &[NotExtended]) -> String {
    let lines = failures.iter().map(|failure| {
        let NotExtended { token, reason } = failure;
        let why = match *reason {
            "LEASE_LOST" => "it has ended",
            reason => why_not_settled(reason),
        };
        format!("lease {token} not extended: {why} ({reason})")
    });
    lines.collect::<Vec<_>>().join("\nerror: ")
}

fn why_not_settled(reason: &str) -> &'static str {
    match reason {
        "NOT_FOUND" => "unknown, settled before, expired or purged",
        "LEASE_LOST" => "its lease ended and somebody else holds it now",
        "MALFORMED" => "not an id or token of this server",
        "NOT_SETTLED" => "the server could not store or read it; it is available again",
        _ => "refused",
    }
}

impl CliError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Connect(ConnectError::Usage(_)) => EXIT_USAGE,
            Self::Runtime(_)
            | Self::Connect(_)
            | Self::Refused(_)
            | Self::Lost { .. }
            | Self::AdminPort { .. }
            | Self::NotGrpc { .. }
            | Self::BadAnswer(_)
            | Self::Input { .. }
            | Self::Output(_)
            | Self::NotAllPublished { .. }
            | Self::NotSettled(_)
            | Self::NotExtended(_)
            | Self::QueueInUse { .. }
            | Self::LoadFailed { .. }
            | Self::NoValue { .. }
            | Self::NotServing(_) => EXIT_FAILED,
        }
    }

    /// Whether the reader of stdout went away, as `head` does when it has what it wants.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<Status> for CliError {
    fn from(status: Status) -> Self {
        match Refusal::of(&status) {
            Some(refusal) => Self::Refused(refusal),
            None => Self::Lost {
                why: format!("the connection broke: {}", innermost(&status)),
            },
        }
    }
}

/// What the server said: message, stable reason, and what to do about it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({reason}){}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub(crate) struct Refusal {
    message: String,
    reason: String,
    hint: Option<String>,
}

impl Refusal {
    /// Whether this is the reason.
    pub(crate) fn is(&self, reason: &str) -> bool {
        self.reason == reason
    }

    /// For a client that sent a key: there is one, and it is another.
    pub(crate) fn of_sent_key(mut self) -> Self {
        if self.is("UNAUTHENTICATED") {
            self.hint = Some("BOLTQ_API_KEY is set, and is no key of this server".to_owned());
        }
        self
    }

    /// `None` if the status was made on this side, because the transport failed.
    fn of(status: &Status) -> Option<Self> {
        let info = status.get_details_error_info();
        if info.is_none() && std::error::Error::source(status).is_some() {
            return None;
        }
        let (reason, retry_after) = match info {
            Some(info) => {
                let retry_after = info.metadata.get("retry_after_ms").and_then(|ms| ms.parse().ok());
                (info.reason, retry_after.map(Duration::from_millis))
            }
            None => (code_name(status.code()).to_owned(), None),
        };
        let hint = hint(&reason, status, retry_after);
        let message = match status.message() {
            "" => "refused without a message".to_owned(),
            message => message.to_owned(),
        };
        Some(Self { message, reason, hint })
    }
}

fn hint(reason: &str, status: &Status, retry_after: Option<Duration>) -> Option<String> {
    match (reason, status.code()) {
        ("QUEUE_NOT_FOUND" | "DEAD_LETTERS_NOT_FOUND", _) => Some("see `boltq queue list`".to_owned()),
        ("NODE_NOT_FOUND" | "GROUP_NOT_FOUND", _) => Some("see `boltq cluster status`".to_owned()),
        ("CACHE_NOT_ENABLED", _) => Some("start the server with cache.enabled".to_owned()),
        ("WATCH_TOO_SLOW", _) => Some("start again with --initial".to_owned()),
        ("CLUSTERING_NOT_ENABLED", _) => Some("start the server with cluster.enabled".to_owned()),
        (_, Code::Unauthenticated) => Some("set BOLTQ_API_KEY to the key of the server".to_owned()),
        (_, Code::Unimplemented) => {
            Some("is this the messaging port of a server that is as new as this `boltq`?".to_owned())
        }
        // Some messages say it themselves.
        _ if status.message().contains("try again") => None,
        _ => retry_after.map(|after| format!("try again in {} ms", after.as_millis())),
    }
}

/// The name that the gRPC specification gives a code.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// The cause at the bottom: "connection refused" says more than the "transport error" around it.
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    fn refusal(code: Code, reason: &str, message: &str, metadata: &[(&str, &str)]) -> String {
        let metadata: HashMap<_, _> = metadata
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let details = ErrorDetails::with_error_info(reason, "boltq", metadata);
        CliError::from(Status::with_error_details(code, message, details)).to_string()
    }

    #[test]
    fn a_refusal_says_what_why_and_what_to_do() {
        assert_eq!(
            refusal(Code::NotFound, "QUEUE_NOT_FOUND", "queue \"emial_jobs\" not found", &[]),
            "queue \"emial_jobs\" not found (QUEUE_NOT_FOUND); see `boltq queue list`"
        );
        assert_eq!(
            refusal(
                Code::ResourceExhausted,
                "STORAGE_FULL",
                "disk full",
                &[("retry_after_ms", "1000")]
            ),
            "disk full (STORAGE_FULL); try again in 1000 ms"
        );
        assert_eq!(
            refusal(Code::Unauthenticated, "UNAUTHENTICATED", "wrong key", &[]),
            "wrong key (UNAUTHENTICATED); set BOLTQ_API_KEY to the key of the server"
        );
    }

    #[test]
    fn what_the_message_says_already_is_not_repeated() {
        assert_eq!(
            refusal(
                Code::Unavailable,
                "OVERLOADED",
                "busy; try again in 5 ms",
                &[("retry_after_ms", "5")]
            ),
            "busy; try again in 5 ms (OVERLOADED)"
        );
    }

    #[test]
    fn without_error_info_the_code_is_the_reason() {
        let error = CliError::from(Status::permission_denied("no"));
        assert_eq!(error.to_string(), "no (PERMISSION_DENIED)");
    }

    #[test]
    fn every_message_that_was_not_settled_has_a_line_of_its_own() {
        let failures = vec![
            Unsettled {
                message_id: MessageId([0; 16]),
                reason: "NOT_FOUND",
            },
            Unsettled {
                message_id: MessageId([1; 16]),
                reason: "LEASE_LOST",
            },
        ];
        let text = CliError::NotSettled(failures).to_string();
        assert_eq!(text.lines().count(), 2);
        assert!(
            text.lines().nth(1).unwrap().starts_with("error: message 0101"),
            "{text}"
        );
    }

    #[test]
    fn only_wrong_usage_exits_with_2() {
        assert_eq!(CliError::Usage(String::new()).exit_code(), 2);
        assert_eq!(CliError::from(Status::invalid_argument("x")).exit_code(), 1);
    }
}
