//! Publishes of several callers to one queue are one command. Each gets its part of the outcome.

use boltq_queue::Outcome;

use super::Answer;

/// Takes the part of the first messages out of an outcome.
pub(super) fn take_front(outcome: &mut Answer, messages: u64) -> Answer {
    match outcome {
        Answer::Queue(Outcome::Published(runs)) => Answer::Queue(Outcome::Published(runs.take_front(messages))),
        // There was room for those in front.
        Answer::Queue(Outcome::Full {
            queue,
            published,
            refused,
        }) => {
            let own = published.take_front(messages);
            let missing = messages.saturating_sub(own.iter().map(|run| run.count).sum());
            *refused = refused.saturating_sub(missing);
            Answer::Queue(match missing {
                0 => Outcome::Published(own),
                missing => Outcome::Full {
                    queue: *queue,
                    published: own,
                    refused: missing,
                },
            })
        }
        // Only publishes are joined, and of one to a topic each caller is told the same.
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use boltq_core::{Applied, Millis, RecordBuilder, StateMachine};
    use boltq_queue::{Machine, QueueOptions, command};
    use bytes::BytesMut;

    use super::*;

    /// The answer to a publish of so many messages to a queue that may hold so many.
    fn published(messages: u32, max_length: u64) -> Answer {
        let mut machine = Machine::default();
        let mut apply = |write: &dyn Fn(&mut BytesMut)| {
            let mut out = BytesMut::new();
            write(&mut out);
            machine.apply(Millis(1), &out, 0, &mut Applied::default()).unwrap()
        };
        let options = QueueOptions {
            max_length: Some(max_length),
            ..QueueOptions::default()
        };
        apply(&|out| command::create_queue(out, "q", &options));
        let outcome = apply(&|out| {
            let writer = command::PublishWriter::begin(out, "q");
            for _ in 0..messages {
                let record = RecordBuilder {
                    json: false,
                    priority: 0,
                    published_ns: 1,
                    expires: None,
                    due: None,
                    id: None,
                    payload: b"x",
                };
                record.write(std::iter::empty(), out);
            }
            writer.finish(out, messages);
        });
        Answer::Queue(outcome)
    }

    /// The first sequence, the number of stored messages, and that of the others.
    fn figures(answer: &Answer) -> (u64, usize, u64) {
        let (runs, refused) = match answer {
            Answer::Queue(Outcome::Published(runs)) => (runs, 0),
            Answer::Queue(Outcome::Full { published, refused, .. }) => (published, *refused),
            other => panic!("{other:?}"),
        };
        let first = runs.places().next().map_or(0, |place| place.seq.0);
        (first, runs.places().count(), refused)
    }

    #[test]
    fn each_caller_is_told_of_its_own_messages() {
        let mut outcome = published(10, 5);
        let shares: Vec<_> = [2, 1, 4, 3]
            .map(|messages| figures(&take_front(&mut outcome, messages)))
            .into();
        assert_eq!(shares, [(1, 2, 0), (3, 1, 0), (4, 2, 2), (0, 0, 3)]);
        assert_eq!(figures(&outcome), (0, 0, 0));
        let mut outcome = published(3, 5);
        let shares: Vec<_> = [1, 2]
            .map(|messages| figures(&take_front(&mut outcome, messages)))
            .into();
        assert_eq!(shares, [(1, 1, 0), (2, 2, 0)]);
    }
}
