//! The way to the servers: addresses and connections, how calls are made and repeated.

mod address;
mod backoff;
mod builder;
mod caller;
mod connections;
mod failure;
mod keys;
mod strangers;
mod tls;
mod unreached;

pub use builder::ClientBuilder;
pub use tls::Tls;

pub(crate) use address::Address;
pub(crate) use caller::{Attempts, Caller, Repeat};
pub(crate) use failure::{Failure, Outcome, reason_outcome};
pub(crate) use keys::{KEYS_FULL, Keyed};
