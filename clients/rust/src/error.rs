//! What can go wrong, for applications.

use std::collections::BTreeMap;
use std::time::Duration;

pub use tonic::Code;

/// What the server says when the outcome of a call is not known; see [`Error::is_outcome_unknown`].
const UNKNOWN: &str = "whether the server has carried the call out is not known";

/// Why a call failed.
///
/// Clones are cheap: one failure of a connection can be that of many publishes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the application asked for cannot be done, whatever the server says. Nothing was sent.
    #[error("{0}")]
    Usage(String),
    /// No server could be reached, so nothing was carried out.
    #[error("no server could be reached: {0}")]
    Unreachable(String),
    /// Something answers at the address, and it is no server of BoltQ, or TLS is spoken by one side only. Nothing was carried out.
    #[error("{0}")]
    WrongServer(String),
    /// The server said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The connection broke, or there was no answer before the deadline.
    #[error("{0}; {UNKNOWN}")]
    Lost(String),
    /// A message was not settled, for this reason.
    #[error("the message was not settled: {0}")]
    NotSettled(NotSettled),
    /// The publisher, or what was to settle a message, is closed. Nothing is known of what was on its way.
    #[error("closed before there was an answer; {UNKNOWN}")]
    Closed,
}

/// What the server said instead of doing it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", self.text())]
pub struct Refusal {
    pub(crate) code: Code,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) outcome_unknown: bool,
    pub(crate) retriable: bool,
}

/// Why a message was not settled. It is delivered again, unless it is done already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NotSettled {
    /// Not a token of this server.
    #[error("MALFORMED: not a token of this server")]
    Malformed,
    /// Unknown, settled before, expired or purged.
    #[error("NOT_FOUND: it is settled, expired or purged, or its lease ended")]
    NotFound,
    /// The lease ended and somebody else holds the message now.
    #[error("LEASE_LOST: its lease ended")]
    LeaseLost,
    /// It could not be stored; the message is delivered again.
    #[error("NOT_SETTLED: the server could not store it")]
    NotStored,
    /// To be cancelled, and due already.
    #[error("NOT_SCHEDULED: it is due")]
    NotScheduled,
    /// A reason that this version does not know.
    #[error("for a reason that this version of the client does not know")]
    Other,
}

impl NotSettled {
    /// The name that the protocol has for it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "MALFORMED",
            Self::NotFound => "NOT_FOUND",
            Self::LeaseLost => "LEASE_LOST",
            Self::NotStored => "NOT_SETTLED",
            Self::NotScheduled => "NOT_SCHEDULED",
            Self::Other => "UNSPECIFIED",
        }
    }
}

impl Error {
    /// The code of gRPC. What did not come from a server has the nearest one.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Usage(_) => Code::InvalidArgument,
            Self::Unreachable(_) | Self::WrongServer(_) => Code::Unavailable,
            Self::Refused(refusal) => refusal.code,
            Self::Lost(_) => Code::DeadlineExceeded,
            Self::NotSettled(_) => Code::FailedPrecondition,
            Self::Closed => Code::Cancelled,
        }
    }

    /// The stable reason, such as `"QUEUE_NOT_FOUND"`; `None` if it did not come from a server of BoltQ.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => refusal.reason(),
            Self::NotSettled(why) => Some(why.reason()),
            Self::Usage(_) | Self::Unreachable(_) | Self::WrongServer(_) | Self::Lost(_) | Self::Closed => None,
        }
    }

    /// What else the server said, such as the `version` of a value of the cache that was not the expected one.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        match self {
            Self::Refused(refusal) => refusal.metadata.get(key).map(String::as_str),
            _ => None,
        }
    }

    /// Whether the same call can succeed later. The client has repeated what it may until the deadline; what is left is for the
    /// application to decide, for example what to do while a queue is full.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.retriable,
            Self::Unreachable(_) | Self::WrongServer(_) | Self::Lost(_) => true,
            Self::Usage(_) | Self::NotSettled(_) | Self::Closed => false,
        }
    }

    /// After what time the server advises to try again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after(),
            _ => None,
        }
    }

    /// Whether the call may have been carried out all the same: then repeating a publish can make a second message.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.outcome_unknown,
            Self::Lost(_) | Self::Closed => true,
            Self::Usage(_) | Self::Unreachable(_) | Self::WrongServer(_) | Self::NotSettled(_) => false,
        }
    }

    /// The same, with the server that it was about.
    pub(crate) fn named(self, server: &str) -> Self {
        match self {
            Self::Unreachable(why) => Self::Unreachable(format!("{server}: {why}")),
            Self::Lost(why) => Self::Lost(format!("{server}: {why}")),
            other => other,
        }
    }

    /// What was wrong, without what is said of the outcome: for an error that tells of several.
    pub(crate) fn below(&self) -> String {
        match self {
            Self::Unreachable(why) | Self::WrongServer(why) | Self::Lost(why) => why.clone(),
            other => other.to_string(),
        }
    }

    /// The same, after an attempt that may have done it.
    pub(crate) fn with_unknown_outcome(self) -> Self {
        match self {
            Self::Refused(mut refusal) => {
                refusal.outcome_unknown = true;
                refusal.into()
            }
            Self::Unreachable(why) | Self::WrongServer(why) => {
                Self::Lost(format!("no server can be reached any more: {why}"))
            }
            other => other,
        }
    }
}

impl Refusal {
    /// The code of gRPC.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The stable reason; `None` if the server gave none, or is none of BoltQ.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        (!self.reason.is_empty()).then_some(self.reason.as_str())
    }

    /// What was wrong and what to do, for people. It may change from version to version.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let millis = self.metadata.get("retry_after_ms")?.parse().ok()?;
        Some(Duration::from_millis(millis))
    }

    fn text(&self) -> String {
        let what = match self.reason() {
            Some(reason) => format!("{} ({reason})", self.message),
            None => format!("{} ({:?})", self.message, self.code),
        };
        match self.outcome_unknown {
            true => format!("{what}; {UNKNOWN}"),
            false => what,
        }
    }
}
