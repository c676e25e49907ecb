//! Ports: accepting connections, telling protocols apart, stopping.
//!
//! `accept` owns the connections of a port: their number is bounded, and it returns when all of them have ended or the
//! grace has passed. `messaging` serves the port that gRPC, gRPC-Web and the binary protocol share; `sniff` decides by
//! the first bytes and never waits for more of them than it needs. `http` has the settings of HTTP.

mod accept;
mod http;
mod messaging;
mod prefixed;
mod sniff;

pub use accept::Acceptor;
pub use http::HttpPort;
pub use messaging::MessagingPort;
