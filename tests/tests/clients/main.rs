//! The client for Rust against real servers: the scenarios that all clients run (`tests/conformance`), and what happens to it when
//! servers are killed, restarted or slow.

mod connecting;
mod examples;
mod footprint;
mod keys;
mod outage;
mod runner;
mod scenarios;
mod secure;
mod watches;
mod workers;
