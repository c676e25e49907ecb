//! The replicated state of a *stream group*: topics, of which readers have positions and nothing is taken away by being read.
//!
//! A topic has partitions. A partition is a stream: records that are numbered 1, 2, 3 … without gaps, which go only when they are too
//! old or too many. A million topics with a partition each, most of them small and silent, are the normal case: conversations, and
//! what is new for each of their members.
//!
//! Pure: no I/O, no clock, no threads, no randomness. Payloads stay in the log; what is here are numbers.
//!
//! # Groups, and the home of a topic
//!
//! There are several groups, and each partition belongs to one of them ([`group_of`]). The group of partition 0 is the topic's *home*.
//! It alone says which topics exist and what they are ([`Terms`]). The number of partitions is decided once, and replicated like
//! everything else: were it configuration, nodes would disagree about the partition of a key.
//!
//! Commands to another group bring the terms along, and what they find there follows: newer settings are taken over, and what is left
//! of an earlier topic of the name goes. So nothing has to be done in several groups at once. A topic that is deleted is deleted at
//! home first, and is gone with that. What it has elsewhere is found by comparing [`Terms::created`], and goes when its group
//! is told, or with the next record for a topic of the name.
//!
//! # Timestamps
//!
//! A record carries the time at which the leader's node took it ([`boltq_core::RecordHead::published_ns`]). Its timestamp is that or,
//! if it is higher, the timestamp of the record before it. The few that are raised like this, when the clock of a new leader is
//! behind, are kept as ranges; so readers see what appenders were told ([`PartitionView::timestamp_ns`]) and timestamps take no memory.
//!
//! # Memory
//!
//! `tests/memory.rs` counts, in the size classes of jemalloc: a topic of one partition, with a name of 27 bytes, takes 149 bytes; a
//! position 99, with a group and a member of 20 bytes together; a remembered key 58. Records take nothing by themselves: 20 bytes for
//! each 64 KiB of them, each day, or each eighth of what [`Retention`] allows, whichever comes first.
//!
//! # Commands
//!
//! ```text
//! 1 Create   short topic, settings
//! 2 Update   target, retention
//! 3 Adopt    short topic, terms
//! 4 Delete   target
//! 5 Append   short topic, u32 partition, terms, claim, u32 count, records one after the other
//! 6 Commit   u32 positions at most, u32 count, each: cursor, u64 the sequence that is wanted next
//! 7 Forget   u32 count, cursors
//! 8 Trim     u32 count, each: short topic
//! 9 Redact   target, u32 partition, u64 sequence
//!
//! target     short topic, u64 created (0: whichever is there)
//! cursor     target, u32 partition, short group, short member
//! terms      u64 created (0: of a command to the home of the topic), u64 changed, settings
//! settings   u32 partitions, retention
//! retention  u64 milliseconds (0: for ever), u64 bytes of a partition (0: any number)
//! claim      u8 0: none; 1: u128 key, u64 milliseconds to live, u32 keys at most
//! short      u8 length, UTF-8
//! ```
//!
//! The first byte names the command *and* its format: a format that changes gets a new number, and the old one stays readable. These
//! groups have a log of their own, so that numbers begin at 1. Integers are little-endian; a command ends where its bytes end.
//!
//! # Snapshot
//!
//! ```text
//! u8  format, 1
//! u64 time, Unix milliseconds; u64 last version; u64 last stream
//! u64 records appended, trimmed, deleted, redacted; u64 appends that were repeated
//! u8  number of sections; each: u8 tag, rising; u64 length; content. One that is empty is left out.
//!
//! 1 topics     u32 number of settings; settings, in their order
//!              u32 number of topics; each, in the order of their names:
//!                  short name, u64 created, u64 changed, u32 which settings
//!                  u32 number of partitions, at least 1; each, in the order of their numbers: partition
//! 2 positions  see `cursors.rs`
//! 3 keys       see `claims.rs`
//!
//! partition    u32 number, u64 stream, u64 first sequence of the open block, u64 timestamp of the last record (nanoseconds)
//!              u32 records, u32 bytes, u32 milliseconds of the open block
//!              u8 what follows: 1 closed blocks, 2 redacted records, 4 raised timestamps
//!              [u32 count; each: u64 first sequence, u64 timestamp of the last record, u32 bytes]
//!              [u32 count; each: u64 first sequence, u64 end]
//!              [u32 count; each: u64 first sequence, u64 end, u64 timestamp]
//! ```
//!
//! # How a plane uses it
//!
//! - **Proposing.** Names, sizes and rights are checked before; a name that is too long for its format is refused where commands are
//!   read, and that ends a group. An append goes to the group of its partition, in one command: terms as the home has them, or
//!   [`Terms::at_home`]. A topic that its home does not have is created there first, unless the append goes to the home itself, which
//!   creates it. Many small appends become one entry; each is applied as a whole or refused as a whole.
//! - **Repeating.** The key of an append counts in its partition: the same id in another conversation is another message. The answer to
//!   a repeated one says where the first one is; whether that is still kept does not matter. What was refused claims nothing.
//! - **Placing.** [`boltq_core::StorageEffect`]s go to the log with the entry that they are of. A record that is redacted is erased: the
//!   log masks it at once, and its bytes go from the files in time.
//! - **Reading** asks the home what the topic is, and the group of the partition for [`Machine::topic`] with the same
//!   [`Terms::created`]. What is there otherwise is of an earlier topic, and the partition is empty. A position before
//!   [`PartitionView::first_seq`] is a gap, to be told; a redacted record is told without content. A time leads to few records
//!   that have to be looked at ([`PartitionView::around`]).
//! - **Tailing.** Each replica wakes who waits for a stream when it has placed records of it: `Placed` says which. [`Effect::Ended`] ends
//!   a tail, and [`Effect::Redacted`] takes a record out of caches.
//! - **Timer.** The leader looks through the topics, a part at a time ([`Machine::overdue`]), and proposes [`command::trim`]. It does the
//!   same for topics whose home has others, and proposes [`command::adopt`] or [`command::delete`]. Nothing depends on when.

mod claims;
mod cursors;
mod fifo;
mod format;
mod machine;
mod outcome;
mod partition;
mod placement;
mod redacted;
mod settings;
mod snapshot;
mod topics;
mod view;

#[cfg(test)]
mod tests;

pub mod command;

pub use claims::ClaimKey;
pub use cursors::CURSOR_NAME_BYTES_MAX;
pub use machine::Machine;
pub use outcome::{AppendRefusal, Appended, Commit, Effect, Outcome, Totals};
pub use placement::{group_of, partition_of};
pub use settings::{PARTITIONS_MAX, Retention, Settings, Terms, Version};
pub use view::{Overdue, PartitionView, TopicView};
