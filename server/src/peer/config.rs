//! What connections between nodes may cost, and how they are protected.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ring::hmac;

/// How this node speaks with others. The default trusts whoever reaches the port.
#[derive(Debug, Clone, Default)]
pub struct PeerConfig {
    /// Shared by the nodes of a cluster.
    pub secret: Option<PeerSecret>,
    /// Mutual TLS.
    pub tls: Option<PeerTls>,
    /// See there.
    pub limits: PeerLimits,
}

/// A secret that all nodes of a cluster know. It proves membership and is never sent; anybody who can watch or redirect
/// the traffic still sees and changes what follows, and may try to guess a weak one: [`PeerTls`] is against those.
#[derive(Clone)]
pub struct PeerSecret(pub(super) hmac::Key);

impl PeerSecret {
    /// Any text; 32 random characters are more than can be guessed.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()))
    }
}

impl fmt::Debug for PeerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerSecret(set)")
    }
}

/// Files of mutual TLS, in PEM. The certificate of each node has to name the host part of its address, or the IP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTls {
    /// Certificate of this node, and those between it and the authority. Shown when calling and when called.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities whose nodes are let in.
    pub ca: PathBuf,
}

/// What peers may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerLimits {
    /// Longest request, answer or chunk.
    pub message_bytes_max: usize,
    /// Calls to one peer that wait for their answer; one group may have half of them. Twice as many are taken from a peer.
    pub outstanding_requests_max: usize,
    /// Their bytes, in the same way.
    pub outstanding_bytes_max: usize,
    /// Proved connections from others.
    pub connections_max: usize,
    /// A connection over which nothing was called for this long is closed; the next call makes a new one.
    pub idle_max: Duration,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self {
            message_bytes_max: 32 << 20,
            outstanding_requests_max: 4_096,
            outstanding_bytes_max: 64 << 20,
            connections_max: 256,
            idle_max: Duration::from_secs(10),
        }
    }
}

/// For everything that comes before a proof, from the first byte on.
pub(super) const PROOF_MAX: Duration = Duration::from_secs(5);
/// For all bytes before a proof, HTTP/2 included: steps of a proof have about 100 bytes each.
pub(super) const UNPROVED_BYTES_MAX: usize = 4 << 10;
/// Connections that have not proved themselves. The oldest goes for one more: honest ones need milliseconds.
pub(super) const UNPROVED_CONNECTIONS_MAX: usize = 64;
/// Longest wait that anybody can ask for.
pub(super) const WITHIN_MAX: Duration = Duration::from_secs(600);
/// For work to end after a stop.
pub(super) const STOP_MAX: Duration = Duration::from_secs(5);
/// For a connection to be there and proved.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(3);
/// First and longest wait after a failure to connect; each is shortened by up to half, so that nodes do not move in step.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(50);
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// A connection whose calls time out goes if nothing at all was answered for this long.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(3);
/// A peer that does not answer a ping is gone: noticed after interval and timeout.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(1);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// What may be under way on one stream and on one connection: 16 ms at 1 Gbit/s, so far more than a network holds.
pub(super) const STREAM_WINDOW_BYTES: u32 = 2 << 20;
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Larger than the default of 16 KiB, for fewer turns on a large message; small enough that pings get in between.
pub(super) const FRAME_BYTES: u32 = 64 << 10;
/// HTTP/2 streams on one connection; a node opens one or two.
pub(super) const STREAMS_MAX: u32 = 16;
/// Of one head, HTTP/2's way of counting.
pub(super) const HEADER_BYTES_MAX: u32 = 4 << 10;
/// What HTTP/2 holds of what is to be sent, and what the system holds unsent: beyond that it waits in our queue, where
/// urgent requests overtake it.
pub(super) const SEND_BUFFER_BYTES: usize = 256 << 10;
#[cfg(target_os = "linux")]
pub(super) const UNSENT_BYTES: u32 = 128 << 10;
