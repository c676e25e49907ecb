//! Connecting to another node where clients do: calls that are passed on to the leader, and asking to be let in.
//!
//! If this node speaks TLS on its ports for clients, so do the others. A node believes another one by the authorities of
//! `server.tls.ca_file`, and by the host of its address, which its certificate has to name.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::material::Client;
use super::store::TlsStore;
use super::stream::Stream;

/// How this node dials others. Clones are cheap.
#[derive(Clone, Default)]
pub struct Dialer(Option<Arc<TlsStore>>);

impl Dialer {
    /// Without a store, connections are not encrypted.
    #[must_use]
    pub fn new(store: Option<Arc<TlsStore>>) -> Self {
        Self(store)
    }

    /// For gRPC, to `host:port`.
    ///
    /// # Errors
    /// Nobody is there, or it is not to be believed.
    pub async fn http2(&self, address: &str) -> io::Result<Stream> {
        self.secure(address, TcpStream::connect(address).await?, |client| &client.http2)
            .await
    }

    /// For HTTP/1.1, to `host:port`.
    ///
    /// # Errors
    /// As [`Dialer::http2`].
    pub async fn http1(&self, address: &str) -> io::Result<Stream> {
        self.secure(address, TcpStream::connect(address).await?, |client| &client.http1)
            .await
    }

    /// For the binary protocol, over a connection to `address` that is there.
    ///
    /// # Errors
    /// As [`Dialer::http2`].
    pub async fn binary(&self, address: &str, stream: TcpStream) -> io::Result<Stream> {
        self.secure(address, stream, |client| &client.other).await
    }

    async fn secure(
        &self,
        address: &str,
        stream: TcpStream,
        config: impl FnOnce(&Client) -> &Arc<ClientConfig>,
    ) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        let Some(store) = &self.0 else {
            return Ok(Stream::Plain(stream));
        };
        let material = store.current();
        let Some(client) = &material.client else {
            return Err(io::Error::other(
                "server.tls.ca_file is not set, so no other node is believed",
            ));
        };
        let connector = TlsConnector::from(config(client).clone());
        let connected = connector.connect(name(address)?, stream).await?;
        Ok(Stream::Tls(Box::new(connected.into())))
    }
}

/// What the certificate has to name.
fn name(address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    ServerName::try_from(bare.to_owned()).map_err(io::Error::other)
}
