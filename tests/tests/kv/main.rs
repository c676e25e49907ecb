//! The key-value cache: its rules, over HTTP and gRPC, on one node. Clusters have theirs in `cluster/cache.rs`.

mod client;
mod conditions;
mod expiry;
mod http_routes;
mod increments;
mod limits;
mod lists;
mod places;
mod restart;
mod statistics;
mod values;
mod watch;
