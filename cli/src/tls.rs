//! A connection that is encrypted.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WantsClientCert, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tonic::transport::Uri;

use crate::address::Address;
use crate::args::Tls;

const ALPN_HTTP2: &[u8] = b"h2";

/// Connects to one server. Clones are cheap.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    host: String,
    port: u16,
    name: ServerName<'static>,
}

impl Connector {
    /// # Errors
    /// A file cannot be used, or a name is none.
    pub(crate) fn new(tls: &Tls, address: &Address) -> Result<Self, String> {
        let name = tls.server_name().unwrap_or_else(|| address.host.clone());
        let wanted = ServerName::try_from(name.clone());
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config(tls)?)),
            host: address.host.clone(),
            port: address.port,
            name: wanted.map_err(|_| format!("{name:?} is no name that a certificate can have"))?,
        })
    }

    /// What the transport of gRPC calls; the address is known already.
    pub(crate) fn service(
        self,
    ) -> impl tower::Service<
        Uri,
        Response = TokioIo<TlsStream<TcpStream>>,
        Error = io::Error,
        Future = impl Future<Output = io::Result<TokioIo<TlsStream<TcpStream>>>> + Send,
    > + Send {
        tower::service_fn(move |_: Uri| {
            let connector = self.clone();
            async move { connector.connect().await.map(TokioIo::new) }
        })
    }

    async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let connected = self.tls.connect(self.name.clone(), stream).await;
        connected.map_err(|error| io::Error::other(TlsFailure::of(&error)))
    }
}

/// Why there is a server, and no TLS with it.
#[derive(Debug)]
pub(crate) struct TlsFailure(String);

impl TlsFailure {
    fn of(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let what_to_do = match inner {
            Some(rustls::Error::InvalidCertificate(
                // The second one is an authority of the same name with another key.
                rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature,
            )) => "; give the certificate of its authority with --ca-file or BOLTQ_CA_FILE",
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidForNameContext { .. })) => {
                "; say with --tls-server-name which name its certificate has"
            }
            Some(rustls::Error::InvalidMessage(_)) => "; does it speak TLS?",
            _ => "",
        };
        Self(format!("{error}{what_to_do}"))
    }

    /// If that is at the bottom of an error.
    pub(crate) fn within<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            if let Some(failure) = wrapped.and_then(|inner| inner.downcast_ref::<Self>()) {
                return Some(failure);
            }
            cause = error.source();
        }
        None
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for TlsFailure {}

fn config(tls: &Tls) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let verifier: Arc<dyn ServerCertVerifier> = match tls.is_insecure() {
        true => Arc::new(Anybody(provider)),
        false => WebPkiServerVerifier::builder_with_provider(Arc::new(roots(tls)?), provider)
            .build()
            .map_err(|error| error.to_string())?,
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = with_identity(builder, tls)?;
    config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
    Ok(config)
}

fn with_identity(builder: ConfigBuilder<ClientConfig, WantsClientCert>, tls: &Tls) -> Result<ClientConfig, String> {
    let Some((cert, key)) = tls.identity()? else {
        return Ok(builder.with_no_client_auth());
    };
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|why| unusable("key", &key, &why))?;
    let built = builder.with_client_auth_cert(certificates(&cert)?, private);
    built.map_err(|why| unusable("certificate", &cert, &why))
}

fn roots(tls: &Tls) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(path) = tls.ca_file() else {
        let found = rustls_native_certs::load_native_certs();
        // Systems have odd ones, which nobody misses.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err("this system has no authorities; give some with --ca-file or BOLTQ_CA_FILE".to_owned());
        }
        return Ok(roots);
    };
    for certificate in certificates(&path)? {
        roots
            .add(certificate)
            .map_err(|why| unusable("authority", &path, &why))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|why| unusable("certificate", path, &why))?;
    match read.is_empty() {
        true => Err(unusable("certificate", path, &"there is none in it")),
        false => Ok(read),
    }
}

fn unusable(what: &str, path: &Path, why: &dyn fmt::Display) -> String {
    format!("{what} {path:?} cannot be used: {why}")
}

/// Believes whoever answers. What is said is still encrypted, and signed by who says it, whoever that is.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
