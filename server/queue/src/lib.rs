//! The queue plane: what happens to a message between publish and acknowledgement.
//!
//! Two halves, and the line between them decides what survives a failover:
//!
//! - [`Machine`] is replicated. It knows which messages exist, which are done, how often one failed, and when a delayed
//!   one is due. Every replica that applies the same commands has the same machine, byte for byte.
//! - [`Plane`] wraps the machine and, on the leader only, hands messages out: who holds what until when. That is not
//!   replicated. It ends with the leadership, and everything that is not done is then available again.
//!
//! So publishes, acknowledgements, failures, dead letters and purges are commands; leases are not. A message is claimed
//! on the leader before a command about it is proposed, so that a lease that ends, a second acknowledgement and a purge
//! never decide about the same message at the same time.
//!
//! Where a message goes is decided in the machine, too: by the name of a queue, by the durable subscriptions of a topic, or
//! by the bindings of an exchange.
//!
//! A queue is twelve streams of records: a lane for each priority, one for messages that were published with a due time in
//! the future, and one for messages with an ordering key. Only places of records are known in here, never payloads. Memory
//! follows what is in flight: ten million waiting messages are two numbers. One that waits for a time, to be due or to expire,
//! takes eight bytes for it, and so does an ordering key.
//!
//! Pure: no I/O, no clock, no threads, no randomness. Time is an argument.

mod calendar;
mod claiming;
pub mod command;
mod copies;
mod dead_letters;
mod delayed;
mod delivery;
mod dispatch;
#[cfg(test)]
mod dispatch_check;
mod due;
mod gathered;
mod lane;
mod leases;
mod lending;
mod looking;
mod machine;
mod managing;
mod notes;
mod once;
mod options;
mod ordering;
mod outcome;
mod place;
mod plane;
mod publishing;
mod queue_state;
mod ranges;
mod room;
mod routing;
mod scheduling;
mod sections;
mod settings;
mod settling;
mod single;
mod sizes;
mod slots;
mod snapshot;
#[cfg(test)]
mod tests;
mod times;
mod timetable;
mod waking;
mod window;

pub use dead_letters::DEAD_LETTER_SUFFIX;
pub use delivery::{Claim, ClaimError, Handle, Leased};
pub use machine::Machine;
pub use managing::QueueRefusal;
pub use once::KeyScope;
pub use options::{QueueOption, QueueOptionSet, QueueOptions};
pub use outcome::{Effect, Outcome, QueueStats, Totals};
pub use place::{ConsumerId, LeaseNo, Place, QueueId, Run, Runs};
pub use plane::{Plane, Retired};
pub use routing::{
    Exchange, ExchangeKind, HeaderRule, ROUTING_KEY_BYTES_MAX, RoutingRefusal, Subscription, backlog_queue,
};
pub use scheduling::{Listing, ScheduleError, Scheduled};
pub use settings::Settings;
pub use snapshot::Captured;
