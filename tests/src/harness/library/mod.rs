//! Clients that do what the two public client libraries of the binary protocol do, written from what its specification tells of
//! them: [`Lockstep`] asks one thing at a time, [`Positional`] matches answers by their position.
//!
//! Their habits are theirs, wise or not. Only their times are shorter where a test would wait for them.

mod lockstep;
mod positional;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

pub use lockstep::Lockstep;
pub use positional::{Asked, Positional};

use super::binary::{BinaryClient, Frame, command, status};

/// The pause before a connection is doubled with each that fails, up to here.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What is set when a library is used.
#[derive(Debug, Clone)]
pub struct Habits {
    /// Where it connects; when that fails, to the next one.
    pub addresses: Vec<SocketAddr>,
    /// Shown with AUTH on every connection; without one there is no AUTH.
    pub api_key: Option<String>,
    /// For each command: 10 s and 30 s in the libraries.
    pub deadline: Duration,
    /// Before it connects again: 2 s in the libraries.
    pub pause: Duration,
}

impl Habits {
    /// Those of the libraries, with a short pause.
    pub fn new(addresses: Vec<SocketAddr>, api_key: Option<&str>) -> Self {
        Self {
            addresses,
            api_key: api_key.map(str::to_owned),
            deadline: Duration::from_secs(30),
            pause: Duration::from_millis(20),
        }
    }

    /// A connection on which AUTH was OK. One that is refused is given up.
    fn open(&self, address: SocketAddr) -> io::Result<BinaryClient> {
        let mut client = BinaryClient::try_connect(address)?;
        client.set_timeout(self.deadline);
        if let Some(key) = &self.api_key {
            let reply = client.try_call(command::AUTH, &json!({"api_key": key}).to_string())?;
            if reply.status != status::OK {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, reply.text()));
            }
        }
        Ok(client)
    }

    /// The pause after so many failures in a row.
    fn pause_after(&self, failures: u32) -> Duration {
        self.pause
            .saturating_mul(1 << failures.min(10))
            .min(PAUSE_MAX.max(self.pause))
    }
}

/// The message, if the frame is a push.
fn pushed(frame: &Frame) -> Option<Value> {
    if frame.status != status::OK {
        return None;
    }
    let body = frame.json();
    let filled = |member: &str| body[member].as_str().is_some_and(|text| !text.is_empty());
    (filled("subscriber_id") && filled("topic")).then_some(body)
}

/// Where the leader is, if the frame says that another node leads.
fn leader(frame: &Frame) -> Option<SocketAddr> {
    (frame.status == status::NOT_LEADER).then(|| frame.json()["leader"].as_str()?.parse().ok())?
}
