//! What a failed call means: the one place that knows which failures are repeated.
//!
//! Two questions matter. Can the same call succeed later? And was this one perhaps carried out? Servers answer both by the
//! reason of `google.rpc.ErrorInfo`; what has none comes from the transport.

use std::error::Error as _;
use std::time::Duration;

use tonic::{Code, ConnectError, Status};
use tonic_types::StatusExt;

use super::address::Address;
use crate::{Error, error::Refusal};

const DOMAIN: &str = "boltq";

/// What became of a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing was changed, and another attempt can succeed.
    NotDone,
    /// Another attempt can succeed, but this one may have done it.
    Unknown,
    /// It is over.
    Final,
}

/// What to do about a call that failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) outcome: Outcome,
    /// Where the leader is, as the node says that refused.
    pub(crate) leader: Option<String>,
    /// Another node may know more, or be there.
    pub(crate) elsewhere: bool,
    pub(crate) retry_after: Option<Duration>,
    /// The server that was asked; `None` for what was said of a single message of a batch.
    pub(crate) from: Option<Address>,
}

/// By the reason alone, as also messages of a batch have it.
pub(crate) fn reason_outcome(reason: &str) -> Outcome {
    match reason {
        "NOT_LEADER" | "NODE_REMOVED" | "NOT_CURRENT" | "NOT_ENOUGH_REPLICAS" | "NO_LEADER" => Outcome::NotDone,
        "LEADER_LOST" | "STOPPED" | "NO_MAJORITY" | "NOT_IN_SYNC" | "REQUEST_STALLED" => Outcome::Unknown,
        _ => Outcome::Final,
    }
}

impl Failure {
    pub(crate) fn of(status: &Status) -> Self {
        if is_unconnected(status) {
            return Self {
                error: Error::Unreachable(innermost(status)),
                outcome: Outcome::NotDone,
                leader: None,
                elsewhere: true,
                retry_after: None,
                from: None,
            };
        }
        match status.get_details_error_info().filter(|info| info.domain == DOMAIN) {
            Some(info) => Self::said(status, info.reason, info.metadata.into_iter().collect()),
            None => Self::from_below(status),
        }
    }

    fn said(status: &Status, reason: String, metadata: std::collections::BTreeMap<String, String>) -> Self {
        let known = |key: &str| metadata.get(key).filter(|value| !value.is_empty());
        // That of LEADER_LOST is the one that was lost.
        let leader = known("leader").filter(|_| reason == "NOT_LEADER").cloned();
        let outcome = match (reason.as_str(), status.code()) {
            // Of the cluster service: the node that is to do something else was removed.
            ("NODE_REMOVED", code) if code != Code::Unavailable => Outcome::Final,
            // The limit of all connections; that of one says no time.
            ("TOO_MANY_UNFINISHED_REQUESTS", _) if metadata.contains_key("retry_after_ms") => Outcome::NotDone,
            (reason, code) => match reason_outcome(reason) {
                // Of a newer server: nothing more can be known of it.
                Outcome::Final if code == Code::Unavailable => Outcome::Unknown,
                outcome => outcome,
            },
        };
        let elsewhere = matches!(
            reason.as_str(),
            "NODE_REMOVED" | "STOPPED" | "NO_MAJORITY" | "NOT_CURRENT"
        );
        let refusal = Refusal {
            code: status.code(),
            message: status.message().to_owned(),
            retriable: outcome != Outcome::Final || metadata.contains_key("retry_after_ms"),
            outcome_unknown: outcome == Outcome::Unknown,
            reason,
            metadata,
        };
        Self {
            retry_after: refusal.retry_after(),
            error: refusal.into(),
            outcome,
            leader,
            elsewhere,
            from: None,
        }
    }

    /// No server of ours has said so: the transport, a proxy, or a service that is not there.
    fn from_below(status: &Status) -> Self {
        let broken = matches!(
            status.code(),
            Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal
        );
        let late = status.code() == Code::DeadlineExceeded;
        let error = match (broken, late) {
            (true, _) => Error::Lost(format!("the connection broke: {}", innermost(status))),
            (_, true) => Error::Lost(format!("no answer in time: {}", status.message())),
            (false, false) => Error::Refused(Refusal {
                code: status.code(),
                reason: String::new(),
                message: status.message().to_owned(),
                metadata: std::collections::BTreeMap::new(),
                outcome_unknown: false,
                retriable: false,
            }),
        };
        Self {
            error,
            outcome: if broken { Outcome::Unknown } else { Outcome::Final },
            leader: None,
            elsewhere: true,
            retry_after: None,
            from: None,
        }
    }

    /// The same call, at an address where no server of BoltQ is.
    pub(super) fn at_wrong_server(what: String) -> Self {
        Self {
            error: Error::WrongServer(what),
            outcome: Outcome::NotDone,
            leader: None,
            elsewhere: true,
            retry_after: None,
            from: None,
        }
    }
}

/// What a failure of a connection is, as far as it can be told from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Below {
    /// Nobody is there.
    Absent,
    /// HTTP/1.1 is spoken over TLS.
    Http1,
    /// Nothing that says why.
    Unclear,
}

impl Below {
    pub(super) fn of(status: &Status) -> Self {
        use std::io::ErrorKind as Kind;
        let mut cause = status.source();
        while let Some(error) = cause {
            match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
                Some(Kind::ConnectionRefused | Kind::TimedOut | Kind::HostUnreachable | Kind::NetworkUnreachable) => {
                    return Self::Absent;
                }
                Some(Kind::Unsupported) => return Self::Http1,
                _ => cause = error.source(),
            }
        }
        Self::Unclear
    }
}

/// Whether there was no connection to send anything on.
fn is_unconnected(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The reason at the bottom: what is above it says "transport error".
fn innermost(status: &Status) -> String {
    let Some(mut cause) = status.source() else {
        return status.message().to_owned();
    };
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    fn status(code: Code, reason: &str, metadata: &[(&str, &str)]) -> Status {
        let metadata: HashMap<String, String> = metadata.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Status::with_error_details(code, "text", ErrorDetails::with_error_info(reason, DOMAIN, metadata))
    }

    #[test]
    fn a_node_that_does_not_lead_has_done_nothing_and_one_that_lost_the_leader_does_not_know() {
        let retry = ("retry_after_ms", "100");
        let direct = status(
            Code::Unavailable,
            "NOT_LEADER",
            &[("leader", "b:1"), ("leader_id", "b"), retry],
        );
        let failure = Failure::of(&direct);
        assert_eq!(
            (failure.outcome, failure.leader.as_deref()),
            (Outcome::NotDone, Some("b:1"))
        );
        assert_eq!(failure.retry_after, Some(Duration::from_millis(100)));
        let nobody = Failure::of(&status(Code::Unavailable, "NOT_LEADER", &[retry]));
        assert_eq!((nobody.outcome, nobody.leader), (Outcome::NotDone, None));
        let lost = Failure::of(&status(Code::Unavailable, "LEADER_LOST", &[("leader", "b:1"), retry]));
        assert_eq!((lost.outcome, lost.leader), (Outcome::Unknown, None));
        assert!(lost.error.is_outcome_unknown());
        let newer = Failure::of(&status(Code::Unavailable, "OF_A_NEWER_SERVER", &[]));
        assert_eq!(newer.outcome, Outcome::Unknown);
    }

    #[test]
    fn what_the_application_has_to_decide_is_final_and_says_whether_it_can_be_tried_again() {
        let full = Failure::of(&status(
            Code::ResourceExhausted,
            "QUEUE_FULL",
            &[("retry_after_ms", "1000")],
        ));
        assert_eq!(full.outcome, Outcome::Final);
        assert!(full.error.is_retriable() && !full.error.is_outcome_unknown());
        assert_eq!(full.error.retry_after(), Some(Duration::from_secs(1)));
        let missing = Failure::of(&status(Code::NotFound, "QUEUE_NOT_FOUND", &[]));
        assert_eq!(missing.outcome, Outcome::Final);
        assert_eq!(missing.error.reason(), Some("QUEUE_NOT_FOUND"));
        assert!(!missing.error.is_retriable());
        let removed = Failure::of(&status(Code::FailedPrecondition, "NODE_REMOVED", &[]));
        assert_eq!(removed.outcome, Outcome::Final);
    }

    #[test]
    fn a_connection_that_broke_leaves_the_outcome_open() {
        for code in [Code::Unavailable, Code::Cancelled, Code::Unknown, Code::Internal] {
            let failure = Failure::of(&Status::new(code, "h2 protocol error"));
            assert_eq!(failure.outcome, Outcome::Unknown, "{code:?}");
            assert!(failure.error.is_outcome_unknown());
        }
        let unconnected = Status::from_error(Box::new(ConnectError("refused".into())));
        assert_eq!(Failure::of(&unconnected).outcome, Outcome::NotDone);
        assert_eq!(Failure::of(&Status::unimplemented("")).outcome, Outcome::Final);
    }
}
