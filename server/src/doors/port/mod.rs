//! Ports: accepting connections, telling protocols apart, stopping.
//!
//! `accept` owns the connections of a port: their number is bounded, and it returns when all of them have ended or the
//! grace has passed. `messaging` serves the port that gRPC, gRPC-Web and the binary protocol share; `sniff` decides by
//! the first bytes and never waits for more of them than it needs. `http` has the settings of HTTP, `timed` the times that its library does not keep. `handles` keeps
//! connections from taking the last file handle.

mod accept;
mod handles;
mod http;
mod listen;
mod messaging;
mod prefixed;
mod sniff;
mod timed;

pub use accept::Acceptor;
pub use handles::Connections;
pub use http::HttpPort;
pub use listen::listen as listen_on;
pub use messaging::MessagingPort;
