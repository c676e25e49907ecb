//! What commands answer, and the figures that are replicated.

use boltq_core::{Seq, StreamId};

use crate::settings::Terms;

/// The answer to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// To a creation or a change: what the topic is.
    Topic {
        /// Whether it was created.
        new: bool,
        /// What it is now.
        terms: Terms,
    },
    /// There is no such topic, or another one of the name.
    NoTopic,
    /// What the topic has here is in line with its home.
    Adopted,
    /// The number of records that went with the topic.
    Deleted(u64),
    /// Where the records are.
    Appended(Appended),
    /// Nothing was appended.
    Refused(AppendRefusal),
    /// One for each position, in the order of the command.
    Committed(Vec<Commit>),
    /// How many positions there were to forget.
    Forgotten(u32),
    /// Records that are not kept were removed.
    Trimmed {
        /// How many.
        records: u64,
        /// Whether there are more in these topics, for another command.
        more: bool,
    },
    /// Whether the record had its content until now.
    Redacted(bool),
    /// There is no such record, or it is not kept any more.
    NoRecord,
}

/// Records of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The stream of the partition.
    pub stream: StreamId,
    /// Sequence of the first one; the others follow it.
    pub first: Seq,
    /// How many there are.
    pub count: u32,
    /// Unix nanoseconds, of the last one. Records that were given the same time have the same timestamp.
    pub timestamp_ns: u64,
    /// They were stored by an earlier append with the same key, and none by this one.
    pub duplicate: bool,
}

/// Why nothing was appended, and nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendRefusal {
    /// The topic has so many partitions, and not this one.
    NoPartition {
        /// How many it has.
        partitions: u32,
    },
    /// The topic that was meant is no more: a later one of the name is here.
    Stale,
    /// So many keys are remembered that there is no room for this one until the time of another is over.
    ClaimsFull,
}

/// What became of one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// Where it is: further on than it was to be if it had been there already, and not beyond the end of the partition.
    At(Seq),
    /// The topic, or the partition of it, has nothing here. Nothing was created.
    NoPartition,
    /// It would be a new one, and the group has as many as it may have.
    Full,
}

/// What has to be known of a command beyond its [`boltq_core::StorageEffect`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The stream is no more, and nothing of it is left. Who reads it is to be told.
    Ended {
        /// The stream.
        stream: StreamId,
    },
    /// The content of a record is gone: nothing that holds a copy may give it away any more.
    Redacted {
        /// The stream.
        stream: StreamId,
        /// The record.
        seq: Seq,
    },
}

/// Counts since the group was created.
///
/// Always true: `appended` = records that there are + `trimmed` + `deleted`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records that were stored.
    pub appended: u64,
    /// Records that were not kept any longer.
    pub trimmed: u64,
    /// Records that went with their topic.
    pub deleted: u64,
    /// Records whose content was taken away.
    pub redacted: u64,
    /// Appends that were answered as repeated.
    pub duplicates: u64,
}
