//! Connections to servers, and which of them the next call takes.
//!
//! One address is current at a time. It stays until a call to it fails in a way that another node may not, or a node says who
//! leads. Addresses that nodes name are used as long as they work: behind a translation of addresses they may not, and then it
//! goes on with those that the application gave.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use super::address::Address;
use super::backoff::random;
use super::tls::Connector;
use crate::Error;

/// How soon a server that is gone without a word is noticed: interval plus timeout.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How many windows of streams a connection has.
const STREAMS_AT_FULL_SPEED: u32 = 4;

/// How connections are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connecting {
    /// For name look-up, TCP and TLS together.
    pub(crate) timeout: Duration,
    /// Of a stream.
    pub(crate) window_bytes: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connections {
    configured: Vec<Address>,
    tls: Option<Connector>,
    window_bytes: u32,
    connect_timeout: Duration,
    /// Whether any server has ever answered a call.
    answered: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    current: Address,
    /// Position in `configured` of the address that is tried next.
    next: usize,
    channels: HashMap<Address, Channel>,
}

impl Connections {
    /// `configured` has one address at least.
    pub(crate) fn new(configured: Vec<Address>, tls: Option<Connector>, connecting: Connecting) -> Result<Self, Error> {
        let count = configured.len();
        let nothing = || Error::Usage("no address of a server was given".to_owned());
        // Clients spread over the nodes from the start on.
        let first = usize::try_from(random() % count.max(1) as u64).unwrap_or_default();
        let current = configured.get(first).ok_or_else(nothing)?.clone();
        Ok(Self {
            configured,
            tls,
            window_bytes: connecting.window_bytes,
            connect_timeout: connecting.timeout,
            answered: AtomicBool::new(false),
            state: Mutex::new(State {
                current,
                next: (first + 1) % count,
                channels: HashMap::new(),
            }),
        })
    }

    /// The addresses that the application gave.
    pub(crate) fn configured(&self) -> &[Address] {
        &self.configured
    }

    /// Whether connections are encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// How long an attempt to connect may take.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Whether any server has ever answered a call.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// A server has answered.
    pub(crate) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// What the next call takes. It connects when it is used, and again when the connection has broken.
    pub(crate) fn current(&self) -> Result<(Address, Channel), Error> {
        let mut state = self.state();
        let address = state.current.clone();
        if let Some(channel) = state.channels.get(&address) {
            return Ok((address, channel.clone()));
        }
        let channel = self.channel(&address)?;
        state.channels.insert(address.clone(), channel.clone());
        Ok((address, channel))
    }

    /// A call to `failed` has failed, and other nodes may do better. Whoever notices second changes nothing.
    pub(crate) fn leave(&self, failed: &Address) {
        let mut state = self.state();
        if state.current == *failed {
            if let Some(next) = self.configured.get(state.next) {
                state.current = next.clone();
            }
            state.next = (state.next + 1) % self.configured.len();
        }
        // Its connection tries again by itself, without end: nobody wants that of a node that is gone for good.
        if !self.configured.contains(failed) {
            state.channels.remove(failed);
        }
    }

    /// A node says that this one leads.
    pub(crate) fn follow(&self, leader: &str) {
        if let Ok((address, _)) = Address::read(leader) {
            self.state().current = address;
        }
    }

    fn channel(&self, address: &Address) -> Result<Channel, Error> {
        let endpoint = Endpoint::from_shared(format!("http://{}", address.authority()))
            .map_err(|error| Error::Usage(format!("address {} cannot be used: {error}", address.authority())))?
            .tcp_nodelay(true)
            .connect_timeout(self.connect_timeout)
            .initial_stream_window_size(self.window_bytes)
            .initial_connection_window_size(self.window_bytes.saturating_mul(STREAMS_AT_FULL_SPEED))
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        Ok(match &self.tls {
            None => endpoint.connect_lazy(),
            Some(tls) => endpoint.connect_with_connector_lazy(tls.service(address)?),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        Address {
            host: "mq".into(),
            port,
        }
    }

    #[tokio::test]
    async fn a_failure_moves_on_once_and_a_leader_that_is_named_is_tried_until_it_fails() {
        let connecting = Connecting {
            timeout: Duration::from_secs(1),
            window_bytes: 1 << 16,
        };
        let connections = Connections::new(vec![address(1), address(2), address(3)], None, connecting).unwrap();
        let (first, _) = connections.current().unwrap();
        connections.leave(&first);
        let (second, _) = connections.current().unwrap();
        assert_ne!(first, second);
        connections.leave(&first);
        assert_eq!(connections.current().unwrap().0, second, "noticed a second time");
        connections.follow("mq:9");
        assert_eq!(connections.current().unwrap().0, address(9));
        connections.leave(&address(9));
        let back = connections.current().unwrap().0;
        assert!(back.port <= 3, "{back:?}");
        let mut seen: Vec<u16> = (0..3)
            .map(|_| {
                let (address, _) = connections.current().unwrap();
                connections.leave(&address);
                address.port
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3], "all of them in turn");
    }
}
