//! The replicated state of a stream group.

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
