//! All that handshakes need, from the files of `server.tls`.

use std::sync::Arc;
use std::time::SystemTime;

use ring::digest::{Context, SHA256};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring as provider};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::expiry;
use super::pem::{PemError, PemFile};
use crate::config::{ClientAuth, ServerTls};

const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Files of `server.tls` that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("server.tls: {0}")]
pub struct TlsError(#[from] PemError);

/// Whole, and consistent in itself.
pub(super) struct Material {
    /// Of the bytes of all files.
    pub(super) digest: [u8; 32],
    /// gRPC, gRPC-Web, and the binary protocol, which names none.
    pub(super) messaging: Arc<ServerConfig>,
    pub(super) admin: Arc<ServerConfig>,
    /// For speaking to other nodes; without authorities there is nobody to believe.
    pub(super) client: Option<Client>,
    /// When the certificate ends; `None` if it does not say so in a way that is known.
    pub(super) expires: Option<SystemTime>,
}

/// By what is spoken.
pub(super) struct Client {
    pub(super) http2: Arc<ClientConfig>,
    pub(super) http1: Arc<ClientConfig>,
    /// The binary protocol.
    pub(super) other: Arc<ClientConfig>,
}

impl Material {
    /// Reads the files. Blocks.
    pub(super) fn load(tls: &ServerTls) -> Result<Self, TlsError> {
        let certificate = PemFile::read("certificate", &tls.cert_file)?;
        let key = PemFile::read("key", &tls.key_file)?;
        let authorities = tls.ca_file.as_deref().map(|path| PemFile::read("authorities", path));
        let authorities = authorities.transpose()?;
        let digest = digest([Some(&certificate), Some(&key), authorities.as_ref()]);
        let chain = certificate.certificates()?;
        let private = key.key()?;
        let roots = authorities.as_ref().map(PemFile::roots).transpose()?.map(Arc::new);
        let expires = chain.first().and_then(|first| expiry::expiry(first));
        let refused = |why: String| certificate.error(&why);
        let client = roots
            .clone()
            .map(|roots| client(roots, chain.clone(), private.clone_key()))
            .transpose()
            .map_err(refused)?;
        let server = server(tls.client_auth, roots, chain, private).map_err(refused)?;
        Ok(Self {
            digest,
            messaging: Arc::new(speaking(server.clone(), &[ALPN_HTTP2, ALPN_HTTP1])),
            admin: Arc::new(speaking(server, &[ALPN_HTTP1])),
            client,
            expires,
        })
    }
}

/// The same for the same bytes. A file that is missing is another thing than an empty one.
fn digest(files: [Option<&PemFile<'_>>; 3]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for file in files {
        let length = file.map_or(u64::MAX, |file| file.bytes().len() as u64);
        context.update(&length.to_be_bytes());
        context.update(file.map_or(&[][..], PemFile::bytes));
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

fn speaking(mut config: ServerConfig, protocols: &[&[u8]]) -> ServerConfig {
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    config
}

fn server(
    client_auth: ClientAuth,
    roots: Option<Arc<RootCertStore>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, String> {
    let provider = Arc::new(provider::default_provider());
    let verifier = verifier(client_auth, roots, &provider)?;
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())
}

fn verifier(
    client_auth: ClientAuth,
    roots: Option<Arc<RootCertStore>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let Some(roots) = roots.filter(|_| client_auth != ClientAuth::None) else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let builder = match client_auth {
        ClientAuth::Required => builder,
        ClientAuth::None | ClientAuth::Optional => builder.allow_unauthenticated(),
    };
    builder
        .build()
        .map(|verifier| verifier as Arc<_>)
        .map_err(|error| error.to_string())
}

/// Shows the certificate of this node, in case the other one wants to see one.
fn client(
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Client, String> {
    let other = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| error.to_string())?;
    let speaking = |protocol: &[u8]| {
        let mut config = other.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    };
    Ok(Client {
        http2: speaking(ALPN_HTTP2),
        http1: speaking(ALPN_HTTP1),
        other: Arc::new(other),
    })
}
