//! The admin port: everything that has to be done by hand, by scripts and by browsers, over HTTP/1.1.
//!
//! Checks go in this order: preflight requests of browsers, API key, path, method, whether the feature is on, body, members that
//! have to be there, operation. Errors are `{"error":"…"}`. Which routes there are stands in [`routes`], and for users of the
//! API in `openapi.json`.

mod access;
mod bodies;
mod cache;
mod cache_metrics;
mod cluster;
mod cluster_metrics;
mod cors;
mod dead_letters;
mod exchange;
mod flat_metrics;
mod forward;
mod group_metrics;
mod health;
mod message;
mod metrics;
mod openapi;
mod overview;
mod publish_metrics;
mod query;
mod queue;
mod queue_metrics;
mod queues;
mod refusal;
mod room;
mod router;
mod routes;
mod routing_metrics;
mod stats;
mod streamed;
mod timing_metrics;
mod tls_metrics;
mod topic;

pub use router::router;
