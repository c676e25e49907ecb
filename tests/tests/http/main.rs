//! The admin port: every route of the HTTP API, against the real server process.

mod client;
mod conformance;
mod cors;
mod dead_letters;
mod forwarded;
mod messages;
mod openapi;
mod overview;
mod queues;
mod rules;
mod schema;
