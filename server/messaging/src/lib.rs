//! The messaging plane on a node: topics of which readers have positions, over the groups of a log of its own.
//!
//! What is replicated is in [`boltq_stream`], which is pure. Here are its groups on this node ([`StreamGroup`]), and what callers do
//! with them ([`Streams`]): a topic has partitions, partitions belong to groups, and a caller knows of neither. Whatever only the
//! leader of a group can do is passed on to it by [`Route`]; everything that is read is read here, from what this node has
//! applied.
//!
//! Nothing here costs a thread, a task or a descriptor for a topic: one task for each group does what has to be done from time to
//! time ([`Streams::maintain`]).

mod append;
mod cursors;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod group;
mod proposing;
mod read;
mod readers;
mod retention;
mod settings;
mod tail;
mod topics;
mod wire;

pub use boltq_stream::Retention;

pub use append::{Appended, NewRecord, Place, Prepared};
pub use cursors::{Committed, CursorInfo, NewCursor};
pub use error::StreamError;
pub use group::StreamGroup;
pub use proposing::{Passed, Route, Slot, Streams};
pub use read::{Content, ReadRecord, ReadRequest, Records, Start};
pub use settings::Settings;
pub use tail::{Event, Source, Tail};
pub use topics::{PartitionInfo, TopicInfo};
