//! Who may do what: one rule for all doors.
//!
//! ```text
//! keyring     the keys of the configuration: what a client shows → a grant, or nobody
//! role        what a key is for, and what an operation needs
//! operations  the table: each operation, what it needs, and what it is called at each door
//! throttle    failed attempts of an address
//! client      one connection: where it comes from, whether it was ever let in
//! ```
//!
//! A door asks [`Access::admit`] with what was shown and what the operation needs, and translates the answer. The node that a
//! client speaks to decides; a call that is passed on carries its key, and the leader decides the same by the same rule.
//!
//! Keys can change while the server runs ([`Access::change`]). A grant of a key that is gone, or whose roles changed, is
//! revoked: doors watch that ([`Grant::revoked`]) and end what was begun with it, streams and connections included.

mod client;
mod gate;
mod grant;
mod keyring;
mod operations;
mod policy;
mod role;
mod throttle;

pub use client::Client;
pub use gate::{Access, Denied};
pub use grant::{Grant, UntilRevoked};
pub use keyring::{KeyEntry, KeyHash};
pub use operations::Operation;
pub use policy::AccessPolicy;
pub use role::{Need, Role, Roles};
