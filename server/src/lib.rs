//! The BoltQ message broker: doors, services, planes and the node that holds them together.
//!
//! Dependencies point down: `doors` decode and encode, `service` has one function per operation, `plane` holds the
//! replicated state with its lock and its log, and the crates below it know nothing of this one.

pub mod access;
pub mod ack_level;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod doors;
pub mod hub;
mod identity;
pub mod node;
pub mod peer;
pub mod plane;
pub mod preflight;
pub mod reload;
mod seldom;
pub mod service;
pub mod tasks;
pub mod telemetry;
pub mod tls;
