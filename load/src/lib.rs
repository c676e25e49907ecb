//! Load for a broker: publishers that send batches, consumers that acknowledge what they get, and what they measured.
//!
//! `boltq bench` and `make bench` drive their load with it, so a figure of one can be compared with a figure of the other.
//!
//! - [`Plan`] says what is done, [`Load`] does it, [`Report`] is what came out.
//! - A **closed loop** sends the next batch when the number of unanswered ones allows it: it finds out how much a broker can
//!   take, and says little about waiting, because it asks less of a broker that is slow.
//! - An **open loop** ([`Plan::rate`]) has a timetable. A batch that could not be sent in time, because the broker or the
//!   machine was slow, counts as waiting since the time at which it was due. So a pause of a second shows in every batch that was
//!   due in that second, and not in one of them.
//! - All times are those of one process. A consumer knows from a stamp in the payload when a message was due ([`Stamp`]), so its
//!   publisher has to be in the same [`Load`].
//!
//! # Another broker
//!
//! A broker is a [`Driver`], which opens a [`Publisher`] or a [`Consumer`] on a connection of its own; the three traits have five
//! methods in all, and [`grpc`] is an example. A driver holds nothing back and measures nothing: how many batches are unanswered,
//! when they are sent and what is counted is decided here, the same for all. It does say what failed, message by message.

mod driver;
mod figures;
pub mod grpc;
mod load;
mod plan;
mod report;
mod stamp;
mod timetable;
mod workers;

pub use driver::{Answered, Batch, Consumer, Driver, LoadError, Publisher, Received};
pub use figures::Counts;
pub use load::Load;
pub use plan::Plan;
pub use report::{Latency, Rate, Report};
pub use stamp::{STAMP_BYTES, Stamp};
