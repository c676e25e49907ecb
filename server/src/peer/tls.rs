//! Mutual TLS between nodes: each side shows a certificate of the same authority.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::config::PeerTls;
use crate::tls::pem::{PemError, PemFile};

const ALPN_HTTP2: &[u8] = b"h2";

/// The files of mutual TLS are of no use.
#[derive(Debug, thiserror::Error)]
#[error("TLS between nodes: {0}")]
pub struct PeerTlsError(#[from] PemError);

/// Whether the files can be used. Blocks.
///
/// # Errors
/// One is missing, or holds something else.
pub fn check_tls(files: &PeerTls) -> Result<(), PeerTlsError> {
    Tls::load(files).map(drop)
}

/// Both directions.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) connector: TlsConnector,
    pub(super) acceptor: TlsAcceptor,
}

impl Tls {
    /// Reads the files. Blocks.
    pub(super) fn load(files: &PeerTls) -> Result<Self, PeerTlsError> {
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(PemFile::read("authorities", &files.ca)?.roots()?);
        let certificate = PemFile::read("certificate", &files.cert)?;
        let chain = certificate.certificates()?;
        let key = PemFile::read("key", &files.key)?.key()?;
        let client = client(&provider, &roots, chain.clone(), key.clone_key());
        let client = client.map_err(|why| certificate.error(&why))?;
        let server = server(provider, roots, chain, key).map_err(|why| certificate.error(&why))?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
        })
    }
}

fn client(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, String> {
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain, key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
    Ok(config)
}

fn server(
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, String> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|error| error.to_string())?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
    Ok(config)
}
