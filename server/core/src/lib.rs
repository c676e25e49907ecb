//! What every layer of BoltQ shares: ids, time, records, limits and the trait of the replicated state machines.
//!
//! Pure: no I/O, no clock, no randomness, no threads. Everything that is written to disk or sent between nodes in one
//! of these types has a version in its first bytes.

pub mod codec;
pub mod histogram;
mod ids;
pub mod limits;
mod machine;
mod message_id;
mod name;
mod ordering;
mod record;
mod time;

pub use codec::DecodeError;
pub use ids::{GroupId, LogIndex, NodeId, Seq, StreamId, Term};
pub use machine::{Applied, StateMachine, StorageEffect};
pub use message_id::{IdSalt, MessageId};
pub use name::{NameError, check_name};
pub use ordering::KeyHash;
pub use record::{Origin, Record, RecordBuilder, RecordHead, record_headers, record_origin};
pub use time::Millis;
