//! The commands that the records of an append become.

use std::num::NonZeroU32;

use boltq_core::{RecordBuilder, Seq};
use boltq_raft::Proposal;
use boltq_stream::command::{AppendWriter, ClaimRequest};
use boltq_stream::{AppendRefusal, Outcome, Terms};

use super::{Appended, NewRecord, Place, Results};
use crate::error::StreamError;

/// The commands for one group.
pub(super) struct Plan<'a> {
    proposal: Proposal,
    commands: Vec<Command>,
    open: Option<Open<'a>>,
}

/// The command that is being written.
struct Open<'a> {
    topic: &'a str,
    partition: u32,
    writer: AppendWriter,
}

/// Records that are stored together or not at all.
pub(super) struct Command {
    partition: u32,
    records: Vec<usize>,
}

impl<'a> Plan<'a> {
    pub(super) fn new() -> Self {
        Self {
            proposal: Proposal::new(),
            commands: Vec::new(),
            open: None,
        }
    }

    pub(super) fn push(
        &mut self,
        index: usize,
        record: &NewRecord<'a>,
        (partition, terms): (u32, &Terms),
        claim: Option<ClaimRequest>,
        now_ns: u64,
    ) {
        let continued = self
            .open
            .as_ref()
            .is_some_and(|open| claim.is_none() && open.topic == record.topic && open.partition == partition);
        if !continued {
            self.close();
            let out = self.proposal.begin();
            let writer = AppendWriter::begin(out, record.topic, partition, terms, claim);
            self.open = Some(Open {
                topic: record.topic,
                partition,
                writer,
            });
            self.commands.push(Command {
                partition,
                records: Vec::new(),
            });
        }
        let builder = RecordBuilder {
            json: record.json,
            priority: 0,
            published_ns: now_ns,
            expires: None,
            due: None,
            ordering_key: match record.place {
                Place::Key(key) => key,
                Place::Partition(_) => "",
            },
            id: None,
            payload: record.payload,
        };
        builder.write(record.headers.iter().copied(), self.proposal.buffer());
        if let Some(command) = self.commands.last_mut() {
            command.records.push(index);
        }
        // A key is for one record.
        if claim.is_some() {
            self.close();
        }
    }

    fn close(&mut self) {
        let count = self.commands.last().map_or(0, |command| command.records.len());
        let count = u32::try_from(count).ok().and_then(NonZeroU32::new);
        if let Some((open, count)) = self.open.take().zip(count) {
            open.writer.finish(self.proposal.buffer(), count);
        }
    }

    pub(super) fn finish(mut self) -> (Proposal, Vec<Command>) {
        self.close();
        self.proposal.end();
        (self.proposal, self.commands)
    }
}

impl Command {
    /// Says of its records what became of them, unless it is worth another attempt.
    pub(super) fn settle(&self, outcome: &Outcome, results: &mut Results) {
        match outcome {
            Outcome::Appended(appended) => {
                for (seq, &index) in (appended.first.0..).zip(&self.records) {
                    results[index] = Some(Ok(Appended {
                        partition: self.partition,
                        seq: Seq(seq),
                        timestamp_ns: appended.timestamp_ns,
                        duplicate: appended.duplicate,
                    }));
                }
            }
            Outcome::Refused(AppendRefusal::ClaimsFull) => self.fail(&StreamError::KeysFull, results),
            Outcome::Refused(AppendRefusal::Stale | AppendRefusal::NoPartition { .. }) => {}
            other => {
                tracing::error!(?other, "an append was answered with what is no answer to it");
                self.fail(&StreamError::Stopped, results);
            }
        }
    }

    pub(super) fn fail(&self, error: &StreamError, results: &mut Results) {
        let own = self.records.iter();
        own.for_each(|index| results[*index] = Some(Err(error.clone())));
    }
}
