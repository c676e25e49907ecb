//! Certificates, and clients of the server that speak TLS.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tonic::transport::{Channel, Endpoint};

use super::ServerOptions;

/// A connection that blocks.
pub type TlsStream = StreamOwned<ClientConnection, std::net::TcpStream>;

/// Who signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Files of a certificate.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate, in PEM.
    pub cert: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
}

impl Authority {
    /// A new one.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A name of its own: OpenSSL takes a certificate whose issuer has its name for a self-signed one.
        params
            .distinguished_name
            .push(DnType::CommonName, "BoltQ test authority");
        let key = KeyPair::generate().expect("a key");
        Self {
            issuer: CertifiedIssuer::self_signed(params, key).expect("an authority"),
        }
    }

    /// Writes its certificate into a directory.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, directory: &Path) -> PathBuf {
        let path = directory.join("ca.pem");
        std::fs::write(&path, self.issuer.pem()).expect("write a certificate");
        path
    }

    /// Writes a new certificate for localhost, and for 127.0.0.1, into a directory.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn issue(&self, directory: &Path, name: &str) -> Identity {
        let (cert, key) = self.pair();
        let identity = Identity {
            cert: directory.join(format!("{name}.pem")),
            key: directory.join(format!("{name}-key.pem")),
        };
        std::fs::write(&identity.cert, cert).expect("write a certificate");
        std::fs::write(&identity.key, key).expect("write a key");
        identity
    }

    /// A new certificate for localhost and 127.0.0.1, and its key, in PEM.
    ///
    /// # Panics
    /// When there is no chance left in the machine.
    pub fn pair(&self) -> (String, String) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).expect("names");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// A server that shows this certificate.
    #[must_use]
    pub fn options(&self, options: ServerOptions, identity: &Identity) -> ServerOptions {
        let text = |path: &Path| path.to_str().expect("a path of UTF-8").to_owned();
        options
            .set("server.tls.enabled", true)
            .set("server.tls.cert_file", text(&identity.cert))
            .set("server.tls.key_file", text(&identity.key))
            .tls(self.client(None, &["http/1.1"]))
    }

    /// A client that believes whom this authority has signed for, and shows `identity` if there is one.
    ///
    /// # Panics
    /// When the files of `identity` are none.
    pub fn client(&self, identity: Option<&Identity>, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("an authority");
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .expect("a verifier");
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_webpki_verifier(verifier);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&identity.cert).expect("a file").collect();
                let key = PrivateKeyDer::from_pem_file(&identity.key).expect("a key");
                builder
                    .with_client_auth_cert(chain.expect("certificates"), key)
                    .expect("a pair")
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// Connects to a server on this machine, and shakes hands.
///
/// # Errors
/// One of both does not want the other.
pub fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<TlsStream> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(super::binary::REPLY_WITHIN))?;
    stream.set_write_timeout(Some(super::binary::REPLY_WITHIN))?;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// A connection of gRPC.
///
/// # Errors
/// One of both does not want the other.
pub async fn channel(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Channel, tonic::transport::Error> {
    let connector = tower::service_fn(move |_: http::Uri| {
        let connector = TlsConnector::from(config.clone());
        async move {
            let stream = TcpStream::connect(address).await?;
            let name = ServerName::try_from("localhost").expect("a name");
            connector.connect(name, stream).await.map(TokioIo::new)
        }
    });
    // That the bytes are encrypted is below HTTP.
    Endpoint::from_shared(format!("http://{address}"))?
        .connect_with_connector(connector)
        .await
}
