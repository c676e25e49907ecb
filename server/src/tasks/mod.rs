//! Work that goes on by itself on a leader.

mod subscriptions;
mod timer;

pub(crate) use subscriptions::expire_subscriptions;
pub(crate) use timer::run_timer;
