//! The admin port: health, statistics, metrics, the cluster and the cache over HTTP/1.1.
//!
//! Checks go in this order: preflight requests of browsers, API key, path, method. Errors are `{"error":"…"}`.

mod access;
mod cache;
mod cache_metrics;
mod cluster;
mod cluster_metrics;
mod exchange;
mod forward;
mod group_metrics;
mod health;
mod metrics;
mod publish_metrics;
mod queue_metrics;
mod refusal;
mod router;
mod routing_metrics;
mod stats;
mod streamed;
mod timing_metrics;
mod tls_metrics;
mod topic;

pub use router::router;
