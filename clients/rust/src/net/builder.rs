//! What a client is told at its start.

use std::time::Duration;

use tonic::Code;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

use super::address::Address;
use super::caller::{Caller, Settings};
use super::connections::{Connecting, Connections};
use super::tls::{Connector, Tls};
use crate::{Client, Error};

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
const WINDOW_BYTES_DEFAULT: u32 = 4 << 20;
/// The protocol has no smaller one at the start, and none over this.
const WINDOW_BYTES: std::ops::RangeInclusive<u32> = (64 << 10)..=(1 << 30);

/// Makes a [`Client`]; see [`Client::builder`].
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    addresses: Vec<String>,
    api_key: Option<String>,
    bearer_token: Option<String>,
    tls: Option<Tls>,
    timeout: Duration,
    connect_timeout: Duration,
    idempotent_publishes: bool,
    window_bytes: u32,
}

impl ClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            addresses: Vec::new(),
            api_key: None,
            bearer_token: None,
            tls: None,
            timeout: TIMEOUT_DEFAULT,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            idempotent_publishes: true,
            window_bytes: WINDOW_BYTES_DEFAULT,
        }
    }

    /// One server more: `host:port`, or `host` for port 9091. With several nodes of a cluster, the client goes on with
    /// another one when one fails. `https://` in front asks for TLS with its defaults.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// As [`ClientBuilder::address`], for each of them.
    #[must_use]
    pub fn addresses<A: Into<String>>(mut self, addresses: impl IntoIterator<Item = A>) -> Self {
        self.addresses.extend(addresses.into_iter().map(Into::into));
        self
    }

    /// Sends this key with every call, as metadata `x-api-key`.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Sends this key with every call, as `authorization: Bearer …`.
    #[must_use]
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.bearer_token = Some(token.into());
        self
    }

    /// Speaks TLS.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// How long a call may take, with all that is repeated; 30 s by default. [`Client::with_timeout`] changes it for some calls.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long an attempt to connect to one server may take, and all of them together as long as no server has ever answered this client:
    /// its calls fail then, and do not wait as long as they may take. Workers wait for ever. 5 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Whether publishes to queues get an idempotency key if they have none; `true` by default.
    ///
    /// With a key, a publish whose answer was lost is sent again and stored once. The server remembers each for `queue.dedup_ttl` (10
    /// minutes), and `queue.dedup_max_keys` (a million) of them, which is enough for 1,600 messages a second. When it has no room for more, the
    /// client makes none for 10 minutes, warns of that once (with `tracing`), and publishes without: who publishes more than that for minutes
    /// has to change these settings, or do without keys. Without, a publish whose outcome is not known fails, see
    /// [`Error::is_outcome_unknown`]. A key that the application chose is never left out.
    #[must_use]
    pub fn idempotent_publishes(mut self, yes: bool) -> Self {
        self.idempotent_publishes = yes;
        self
    }

    /// Bytes of one stream that servers may send before the application takes them: what a subscription that is not read
    /// takes of memory, beside one response. 4 MiB by default, 64 KiB to 1 GiB. A connection has four times as much for all its streams.
    #[must_use]
    pub fn window_bytes(mut self, bytes: u32) -> Self {
        self.window_bytes = bytes;
        self
    }

    /// A client that connects with its first call.
    ///
    /// Has to be called within a runtime of tokio.
    ///
    /// # Errors
    /// What was configured cannot be used.
    pub fn build(self) -> Result<Client, Error> {
        if !WINDOW_BYTES.contains(&self.window_bytes) {
            let what = format!("window_bytes is {}; 64 KiB to 1 GiB are allowed", self.window_bytes);
            return Err(Error::Usage(what));
        }
        let metadata = self.metadata()?;
        let (addresses, tls) = self.read_addresses()?;
        let connector = tls.map(|tls| Connector::new(&tls)).transpose()?;
        let settings = Settings {
            metadata,
            timeout: self.timeout,
            idempotent_publishes: self.idempotent_publishes,
        };
        let connecting = Connecting {
            timeout: self.connect_timeout,
            window_bytes: self.window_bytes,
        };
        let connections = Connections::new(addresses, connector, connecting)?;
        Ok(Client::new(Caller::new(connections, settings)))
    }

    /// A client, after one of the servers has answered.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`], or none of them answers within [`ClientBuilder::connect_timeout`], or does not accept the key.
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.build()?;
        match client.cluster().status().await {
            // The key is for other things, and it is one.
            Err(error) if error.code() == Code::PermissionDenied => Ok(client),
            answer => answer.map(|_| client),
        }
    }

    fn read_addresses(&self) -> Result<(Vec<Address>, Option<Tls>), Error> {
        let mut tls = self.tls.clone();
        let mut addresses = Vec::new();
        for text in &self.addresses {
            let (address, secure) = Address::read(text)?;
            match (secure, &tls, addresses.is_empty()) {
                (Some(false), Some(_), _) => {
                    return Err(Error::Usage(format!("{text:?} says http, and TLS is asked for too")));
                }
                (Some(true), None, true) => tls = Some(Tls::new()),
                (Some(true), None, false) => {
                    return Err(Error::Usage("some addresses say https and others do not".to_owned()));
                }
                _ => {}
            }
            addresses.push(address);
        }
        Ok((addresses, tls))
    }

    fn metadata(&self) -> Result<MetadataMap, Error> {
        let mut metadata = MetadataMap::new();
        let bearer = self.bearer_token.as_ref().map(|token| format!("Bearer {token}"));
        for (name, value) in [("x-api-key", &self.api_key), ("authorization", &bearer)] {
            let Some(value) = value else { continue };
            let mut value: MetadataValue<Ascii> = value.parse().map_err(|_| {
                // The value is a secret, so it is not shown.
                Error::Usage(
                    "a key cannot be sent: a header carries ASCII characters from the space to \"~\"".to_owned(),
                )
            })?;
            value.set_sensitive(true);
            metadata.insert(name, value);
        }
        Ok(metadata)
    }
}
