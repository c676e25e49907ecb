//! The admin port: health, statistics, metrics and the cluster over HTTP/1.1.
//!
//! Checks go in this order: preflight requests of browsers, API key, path, method. Errors are `{"error":"…"}`.

mod access;
mod cluster;
mod cluster_metrics;
mod group_metrics;
mod health;
mod metrics;
mod publish_metrics;
mod router;
mod stats;

pub use router::router;
