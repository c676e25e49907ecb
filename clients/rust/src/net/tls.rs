//! Connections that are encrypted.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, AlertDescription, ClientConfig, RootCertStore};
use tonic::transport::Uri;

use super::address::Address;
use super::strangers::http_only;
use crate::Error;

const ALPN_HTTP2: &[u8] = b"h2";

type Encrypted = TokioIo<TlsStream<TcpStream>>;
type Connecting = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

/// How to speak TLS with the servers.
///
/// By default they have to show a certificate that the authorities of this system have signed, for the host that was dialled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    ca_file: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

impl Tls {
    /// With the authorities of this system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Believes the authorities in this file (PEM), and no others.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Shows a certificate to the servers: mutual TLS. Both files are PEM.
    #[must_use]
    pub fn identity(mut self, cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        self.identity = Some((cert_file.into(), key_file.into()));
        self
    }

    /// The name that the certificate of the servers has, if it is not the host that is dialled.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    fn config(&self) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Usage(error.to_string()))?
            .with_root_certificates(self.roots()?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|why| unusable("key", key, &why))?;
                let built = builder.with_client_auth_cert(certificates(cert)?, private);
                built.map_err(|why| unusable("certificate", cert, &why))?
            }
        };
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
        Ok(config)
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.ca_file else {
            // Systems have odd ones, which nobody misses.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return match roots.is_empty() {
                true => Err(Error::Usage(
                    "this system has no authorities; give some with Tls::ca_file".to_owned(),
                )),
                false => Ok(roots),
            };
        };
        for certificate in certificates(path)? {
            roots
                .add(certificate)
                .map_err(|why| unusable("authority", path, &why))?;
        }
        Ok(roots)
    }
}

/// Whether the server has refused the handshake because it has no HTTP/2.
fn is_without_http2(error: &io::Error) -> bool {
    let said = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(
        said,
        Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol))
    )
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|why| unusable("certificate", path, &why))?;
    match read.is_empty() {
        true => Err(unusable("certificate", path, &"there is none in it")),
        false => Ok(read),
    }
}

fn unusable(what: &str, path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Usage(format!("{what} {} cannot be used: {why}", path.display()))
}

/// Connects to servers. Clones are cheap.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    server_name: Option<String>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("server_name", &self.server_name)
            .finish()
    }
}

impl Connector {
    /// Reads the files.
    pub(crate) fn new(tls: &Tls) -> Result<Self, Error> {
        Ok(Self {
            tls: TlsConnector::from(Arc::new(tls.config()?)),
            server_name: tls.server_name.clone(),
        })
    }

    /// What the transport of gRPC calls; the address is known already.
    pub(crate) fn service(
        &self,
        address: &Address,
    ) -> Result<
        impl tower::Service<Uri, Response = Encrypted, Error = io::Error, Future = Connecting> + Send + use<>,
        Error,
    > {
        let name = self.server_name.clone().unwrap_or_else(|| address.host.clone());
        let wanted = ServerName::try_from(name.clone())
            .map_err(|_| Error::Usage(format!("{name:?} is no name that a certificate can have")))?;
        let (tls, host, port) = (self.tls.clone(), address.host.clone(), address.port);
        Ok(tower::service_fn(move |_: Uri| -> Connecting {
            let (tls, wanted) = (tls.clone(), wanted.clone());
            let address = Address {
                host: host.clone(),
                port,
            };
            Box::pin(async move {
                let stream = TcpStream::connect((address.host.as_str(), port)).await?;
                stream.set_nodelay(true)?;
                let http1 = || io::Error::new(io::ErrorKind::Unsupported, http_only(&address));
                match tls.connect(wanted, stream).await {
                    Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2) => Ok(TokioIo::new(stream)),
                    // It would take what is sent for a request of HTTP/1.1.
                    Ok(_) => Err(http1()),
                    Err(error) if is_without_http2(&error) => Err(http1()),
                    Err(error) => Err(error),
                }
            })
        }))
    }
}
