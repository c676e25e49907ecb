//! The admin port: health, statistics and metrics over HTTP/1.1.
//!
//! Checks go in this order: preflight requests of browsers, API key, path, method. Errors are `{"error":"…"}`.

mod access;
mod health;
mod metrics;
mod router;
mod stats;

pub use router::router;
