//! What happened: the last lines to read, all of them in a hash, and what was found to be wrong.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clocks;
use crate::random::hash;

/// Lines that are kept.
const LINES_MAX: usize = 400;

/// What must never be otherwise; the name says which checker found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checker {
    /// A publish that was acknowledged is delivered or accounted for.
    NoLoss,
    /// What is delivered was published, as it is, to this queue, and was not refused.
    NoPhantom,
    /// A message has one id, and one body wherever it is.
    OneBody,
    /// Publishes with the same idempotency key are one message.
    Once,
    /// What is published to a topic or an exchange is in each queue that it goes to, and in no other.
    Routing,
    /// What was acknowledged by its consumer is not delivered again.
    AckedStaysAcked,
    /// A message has one holder at a time.
    LeaseExclusivity,
    /// A token of an earlier lease settles nothing that somebody else holds.
    Fencing,
    /// A message is delivered neither before it is due nor after it has expired.
    InTime,
    /// Of an ordering key one message is out at a time, and none comes behind one that was published later.
    KeyOrder,
    /// Published = open + acknowledged + expired + purged, and each fits what clients were told.
    Conservation,
    /// Replicas with the same entries have the same state.
    EqualReplicas,
    /// Entries that were applied are the same on all nodes.
    LogAgreement,
    /// In a term, one node hands out messages.
    OneLeader,
    /// A read that has to be current sees everything that was applied anywhere before it began.
    CurrentReads,
    /// Terms and applied entries do not go back while a node runs.
    Monotonic,
    /// What is read of the cache was set, and is not older than what was answered; numbers count each increment once.
    Cache,
    /// With a majority connected, writes succeed within the time that is promised; then all catch up.
    Progress,
    /// A node comes up with what its disk has, and goes on.
    Recovery,
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What broke.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Who found it.
    pub checker: Checker,
    /// What it is.
    pub what: String,
}

#[derive(Debug, Default)]
struct Inner {
    lines: VecDeque<String>,
    hash: u64,
    events: u64,
    counts: BTreeMap<&'static str, u64>,
    violation: Option<Violation>,
}

/// The trace of a run; clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Inner>>);

impl Trace {
    pub(crate) fn note(&self, what: fmt::Arguments<'_>) {
        let line = format!("{:>6} ms  {what}", clocks::elapsed_ms());
        let mut inner = self.0.lock();
        inner.hash = hash(inner.hash, line.as_bytes());
        inner.events += 1;
        if inner.lines.len() == LINES_MAX {
            inner.lines.pop_front();
        }
        inner.lines.push_back(line);
    }

    /// The first one counts; what comes after it may be its consequence.
    pub(crate) fn violation(&self, checker: Checker, what: String) {
        self.note(format_args!("VIOLATION of {checker}: {what}"));
        self.0.lock().violation.get_or_insert(Violation { checker, what });
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.0.lock().violation.is_some()
    }

    pub(crate) fn found(&self) -> Option<Violation> {
        self.0.lock().violation.clone()
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.lock().hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.0.lock().events
    }

    /// One more of these.
    pub(crate) fn count(&self, what: &'static str) {
        *self.0.lock().counts.entry(what).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().counts.clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().lines.iter().cloned().collect()
    }
}

/// Adds a line to a trace.
macro_rules! note {
    ($trace:expr, $($what:tt)*) => {
        $trace.note(format_args!($($what)*))
    };
}
pub(crate) use note;
