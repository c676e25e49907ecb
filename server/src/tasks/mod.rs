//! Work that goes on by itself on a leader.

mod subscriptions;
mod timer;

pub(crate) use subscriptions::expire_subscriptions;
pub use timer::run_timer;
