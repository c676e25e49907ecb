//! Section `server.tls`: TLS on the ports for clients.

use std::path::PathBuf;

use super::error::ConfigError;
use super::keys as key;
use super::layers::Settings;

/// Section `server.tls`, if it is enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// Certificate of this server, and those between it and the authority.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
    /// Authorities of clients that show a certificate, and of other nodes.
    pub ca_file: Option<PathBuf>,
    /// Whether clients show a certificate.
    pub client_auth: ClientAuth,
}

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// None is asked for.
    None,
    /// One that is shown has to be right.
    Optional,
    /// Nobody is let in without one.
    Required,
}

impl ServerTls {
    /// `clustered`: other nodes are dialled, and have to be believed.
    pub(super) fn check(settings: &Settings, clustered: bool) -> Result<Option<Self>, ConfigError> {
        let cert_file = settings.get(&key::SERVER_TLS_CERT_FILE)?;
        let key_file = settings.get(&key::SERVER_TLS_KEY_FILE)?;
        let ca_file = settings.get(&key::SERVER_TLS_CA_FILE)?;
        let client_auth = settings.get(&key::SERVER_TLS_CLIENT_AUTH)?;
        if !settings.get(&key::SERVER_TLS_ENABLED)? {
            return Ok(None);
        }
        let enabled = &key::SERVER_TLS_ENABLED;
        let Some(cert_file) = cert_file else {
            return Err(settings.contradiction(enabled, &key::SERVER_TLS_CERT_FILE, "TLS needs a certificate"));
        };
        let Some(key_file) = key_file else {
            return Err(settings.contradiction(enabled, &key::SERVER_TLS_KEY_FILE, "TLS needs a private key"));
        };
        if client_auth != ClientAuth::None && ca_file.is_none() {
            return Err(settings.contradiction(
                &key::SERVER_TLS_CLIENT_AUTH,
                &key::SERVER_TLS_CA_FILE,
                "it takes authorities to believe certificates of clients",
            ));
        }
        if clustered && ca_file.is_none() {
            return Err(settings.contradiction(
                enabled,
                &key::SERVER_TLS_CA_FILE,
                "nodes of a cluster pass requests on to each other, and it takes authorities to believe the other one",
            ));
        }
        Ok(Some(Self {
            cert_file,
            key_file,
            ca_file,
            client_auth,
        }))
    }
}
