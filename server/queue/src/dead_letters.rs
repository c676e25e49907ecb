//! Where messages go that failed too often.

use std::borrow::Cow;

use crate::machine::Machine;
use crate::options::QueueOptions;

/// Suffix of the dead-letter queue of a queue that has named no other.
pub const DEAD_LETTER_SUFFIX: &str = "_dead_letter";
/// Queues that a message may go through as a dead letter, from one that has named another to the next.
const HOPS_MAX: usize = 16;

/// The dead letters of a dead-letter queue stay in it, so that a poison message does not grow a chain of queues.
fn target<'n>(queue: &'n str, options: Option<&QueueOptions>) -> Cow<'n, str> {
    match options.and_then(|options| options.dead_letter_queue.as_deref()) {
        Some(named) => named.to_owned().into(),
        None if queue.ends_with(DEAD_LETTER_SUFFIX) => queue.into(),
        None => format!("{queue}{DEAD_LETTER_SUFFIX}").into(),
    }
}

impl Machine {
    /// The queue that the dead letters of a queue go to. Neither has to exist.
    #[must_use]
    pub fn dead_letter_queue<'n>(&self, queue: &'n str) -> Cow<'n, str> {
        let id = self.queue(queue);
        target(queue, id.and_then(|id| self.options(id)))
    }

    /// Whether dead letters that go from `queue` to `named` would come back, and so never come to rest.
    pub(crate) fn dead_letters_return(&self, queue: &str, named: &str) -> bool {
        let mut at: Cow<'_, str> = named.into();
        for _ in 0..HOPS_MAX {
            if at == queue {
                return true;
            }
            let next = self.dead_letter_queue(&at).into_owned();
            if next == at {
                return false;
            }
            at = next.into();
        }
        true
    }
}
