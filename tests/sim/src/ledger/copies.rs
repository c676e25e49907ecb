//! Messages that go to several queues: each has a copy of its own, with an id of its own, and what is true of a message is
//! true of each of them.

use boltq_server::service::DEAD_LETTER_SUFFIX;

use super::{Begun, Inner, Ledger, Publish, Told};
use crate::trace::{Checker, note};

impl Inner {
    /// The number of the copy in a queue; of a message without copies its own.
    pub(super) fn copy(&self, tag: u64, queue: &str) -> u64 {
        let queue = queue.strip_suffix(DEAD_LETTER_SUFFIX).unwrap_or(queue);
        self.copies.get(&(tag, queue.to_owned())).copied().unwrap_or(tag)
    }

    pub(super) fn is_of_copies(&self, tag: u64) -> bool {
        let of_tag = (tag, String::new())..(tag + 1, String::new());
        self.copies.range(of_tag).next().is_some()
    }
}

impl Ledger {
    /// Somebody publishes something to a topic or an exchange, and knows which queues get a copy.
    pub(crate) fn routing(&self, begun: Begun, tag: u64, copies: &[Publish]) {
        self.publishing(begun, copies);
        let mut inner = self.inner.lock();
        for copy in copies {
            inner.copies.insert((tag, copy.queue.clone()), copy.tag);
            if let Some(message) = inner.messages.get_mut(&copy.tag) {
                message.routed = true;
            }
        }
    }

    /// What came of it; with the number of queues that it is said to be in, if it is done.
    pub(crate) fn routed(&self, begun: Begun, tag: u64, copies: &[Publish], told: Told, queues: usize) {
        let mut inner = self.inner.lock();
        inner.event += 1;
        for copy in copies {
            if let Some(message) = inner.messages.get_mut(&copy.tag) {
                message.told = told;
            }
        }
        drop(inner);
        self.trace.count(match told {
            Told::Done => "routed publishes",
            Told::Refused => "routed publishes refused",
            Told::Unknown => "routed publishes unknown",
        });
        note!(self.trace, "n{} routes {tag}: {told:?}, {queues} queues", begun.node);
        if told == Told::Done && queues != copies.len() {
            let what = format!(
                "message {tag} is said to be in {queues} queues, and goes to {}",
                copies.len()
            );
            self.trace.violation(Checker::Routing, what);
        }
    }
}
