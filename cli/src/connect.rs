//! The way to the server: address, key, deadlines.

use std::env;
use std::ffi::OsStr;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;
use boltq_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use boltq_proto::exchange::v1::exchange_service_client::ExchangeServiceClient;
use boltq_proto::kv::v1::kv_service_client::KvServiceClient;
use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use tokio::time::timeout;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_client::HealthClient;

use crate::address::Address;
use crate::args::Tls;
use crate::error::{CliError, innermost};
use crate::tls::{Connector, TlsFailure};

const API_KEY: &str = "x-api-key";
/// Where a server listens that nobody configured.
pub(crate) const ADDR_DEFAULT: &str = "localhost:9091";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a server may take for an answer, beyond any wait that it was asked for.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// A stream may be silent for ever; these find out whether the other side is still there.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The defaults of HTTP/2 (64 KiB) would make bulk work wait for window updates.
const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Largest answer that is taken: deliveries may be batches of large messages.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A channel that sends the API key with every call.
pub(crate) type Wire = InterceptedService<Channel, ApiKey>;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// What was configured cannot work, whatever the server does.
    #[error("{0}")]
    Usage(String),
    #[error("no server at {addr}: {why}; start one with `make run`, or set BOLTQ_ADDR or --addr")]
    NoServer { addr: String, why: String },
    #[error("the host of {addr} is unknown: {why}; look at its name in BOLTQ_ADDR or --addr")]
    UnknownHost { addr: String, why: String },
    #[error(
        "no connection to {addr} within {seconds} s; is that the right host, and does a firewall let its port through?"
    )]
    NoAnswer { addr: String, seconds: u64 },
    #[error("no TLS with {addr}: {why}")]
    NoTls { addr: String, why: String },
}

impl ConnectError {
    fn of(addr: &str, error: &tonic::transport::Error) -> Self {
        let addr = addr.to_owned();
        if let Some(why) = TlsFailure::within(error) {
            let why = why.to_string();
            return Self::NoTls { addr, why };
        }
        let why = innermost(error);
        // The standard library has no kind for it, and always these words.
        match why.starts_with("failed to lookup address information") {
            true => Self::UnknownHost { addr, why },
            false => Self::NoServer { addr, why },
        }
    }
}

/// Which server, and how.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) addr: String,
    pub(crate) tls: Tls,
}

/// A server that answered the phone.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    target: Target,
    channel: Channel,
    key: ApiKey,
}

impl Server {
    /// Connects within 3 s, name look-up included.
    pub(crate) async fn connect(target: &Target) -> Result<Self, ConnectError> {
        let key = ApiKey::from_env()?;
        Ok(Self {
            target: target.clone(),
            channel: open(target).await?,
            key,
        })
    }

    /// A connection to the same server that shares nothing with the first.
    pub(crate) async fn another_connection(&self) -> Result<Channel, ConnectError> {
        open(&self.target).await
    }

    /// What has to go with every call on [`Server::another_connection`].
    pub(crate) fn metadata(&self) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        if let Some(key) = &self.key.0 {
            metadata.insert(API_KEY, key.clone());
        }
        metadata
    }

    /// Whether calls carry an API key.
    pub(crate) fn sends_key(&self) -> bool {
        self.key.0.is_some()
    }

    pub(crate) fn queues(&self) -> QueueServiceClient<Wire> {
        QueueServiceClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn topics(&self) -> TopicServiceClient<Wire> {
        TopicServiceClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn exchanges(&self) -> ExchangeServiceClient<Wire> {
        ExchangeServiceClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn admin(&self) -> AdminServiceClient<Wire> {
        AdminServiceClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn kv(&self) -> KvServiceClient<Wire> {
        KvServiceClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn cluster(&self) -> ClusterServiceClient<Wire> {
        ClusterServiceClient::with_interceptor(self.channel.clone(), self.key.clone())
    }

    pub(crate) fn health(&self) -> HealthClient<Wire> {
        HealthClient::with_interceptor(self.channel.clone(), self.key.clone())
    }
}

async fn open(target: &Target) -> Result<Channel, ConnectError> {
    let addr = &target.addr;
    let address = Address::read(addr).map_err(ConnectError::Usage)?;
    let secure = is_secure(&address, &target.tls).map_err(ConnectError::Usage)?;
    let endpoint = Endpoint::from_shared(address.uri())
        .map_err(|error| ConnectError::Usage(format!("address {addr:?} cannot be used: {error}")))?
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let connecting: Pin<Box<dyn Future<Output = _> + Send>> = match secure {
        false => Box::pin(endpoint.connect()),
        true => {
            let connector = Connector::new(&target.tls, &address).map_err(ConnectError::Usage)?;
            Box::pin(endpoint.connect_with_connector(connector.service()))
        }
    };
    match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(ConnectError::of(addr, &error)),
        Err(_) => Err(ConnectError::NoAnswer {
            addr: addr.to_owned(),
            seconds: CONNECT_TIMEOUT.as_secs(),
        }),
    }
}

/// Makes a call; `wait` is what the server was asked to wait, and comes on top of the time for the answer.
pub(crate) async fn answer<T>(
    call: impl Future<Output = Result<Response<T>, Status>>,
    wait: Option<Duration>,
) -> Result<T, CliError> {
    let longest = ANSWER_TIMEOUT + wait.unwrap_or_default();
    match timeout(longest, call).await {
        Ok(response) => Ok(response?.into_inner()),
        Err(_) => Err(CliError::Lost {
            why: format!("no answer within {} s", longest.as_secs()),
        }),
    }
}

/// The API key as metadata, `x-api-key`.
#[derive(Debug, Clone)]
pub(crate) struct ApiKey(Option<MetadataValue<Ascii>>);

impl ApiKey {
    /// Only from the environment: what is on the command line, every user of the machine can read.
    fn from_env() -> Result<Self, ConnectError> {
        Self::read(&env::var_os("BOLTQ_API_KEY").unwrap_or_default())
    }

    /// Whatever would reach the server as another key, or not at all, is refused here.
    fn read(key: &OsStr) -> Result<Self, ConnectError> {
        if key.is_empty() {
            return Ok(Self(None));
        }
        let sent = |key: &&str| key.bytes().all(|byte| matches!(byte, b' '..=b'~')) && key.trim() == *key;
        let value = key.to_str().filter(sent).and_then(|key| key.parse().ok());
        let mut value: MetadataValue<Ascii> = value.ok_or_else(|| {
            ConnectError::Usage(
                "BOLTQ_API_KEY cannot be sent: a header carries ASCII characters from the space to `~`, and no space \
                 at either end"
                    .into(),
            )
        })?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for ApiKey {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(key) = &self.0 {
            request.metadata_mut().insert(API_KEY, key.clone());
        }
        Ok(request)
    }
}

/// Whoever asks for TLS must not get plain text without being told.
fn is_secure(address: &Address, tls: &Tls) -> Result<bool, String> {
    match (address.secure, tls.is_asked_for()) {
        (Some(false), true) => {
            Err("the address says http://, and TLS is asked for too; leave out one of them".to_owned())
        }
        (secure, asked) => Ok(secure.unwrap_or(asked)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_a_header_cannot_carry_as_it_is_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let read = |key: &[u8]| ApiKey::read(std::ffi::OsStr::from_bytes(key));
        assert!(read(b"").unwrap().0.is_none());
        assert_eq!(read(b"a key: ~!").unwrap().0.unwrap().as_bytes(), b"a key: ~!");
        for key in [
            &b"\xff"[..],
            "schl\u{fc}ssel".as_bytes(),
            b"a\tb",
            b"a\n",
            b" a",
            b"a ",
            b"\x7f",
        ] {
            let error = read(key).unwrap_err();
            assert!(
                matches!(&error, ConnectError::Usage(why) if why.starts_with("BOLTQ_API_KEY ")),
                "{key:?}: {error}"
            );
        }
    }
}
