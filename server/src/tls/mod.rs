//! TLS for clients: on the ports that this node opens for them, and where it speaks to other nodes as a client does.
//!
//! ```text
//! pem       one file → certificates, a key, authorities
//! material  all files of `server.tls` → what handshakes need; whole and consistent, or an error
//! store     the material in use, and its replacement by newer files
//! accept    a handshake, with a deadline          dial   connecting to another node
//! stream    bytes, encrypted or not
//! expiry    until when a certificate holds
//! ```
//!
//! New files take effect with the next handshake; connections that are open keep what they began with. Files that cannot be
//! used, such as a certificate whose key is not written yet, change nothing.
//!
//! Mutual TLS between nodes on their own port is in `peer`, and shares `pem` alone.

mod accept;
mod dial;
mod expiry;
mod material;
pub(crate) mod pem;
mod store;
mod stream;
#[cfg(test)]
mod tests;

pub use accept::PortTls;
pub use dial::Dialer;
pub use material::TlsError;
pub use store::{Looked, TlsStore};
pub use stream::Stream;
