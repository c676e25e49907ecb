//! Whether the connection is encrypted, and who is believed.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Options of all commands. `https://` in the address is as good as `--tls`, and so is any other of these.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Tls {
    /// Encrypt the connection; also BOLTQ_TLS_ENABLED
    #[arg(long, global = true)]
    tls: bool,
    /// Believe servers that these authorities have signed for, in PEM [default: those of the system]
    #[arg(long, global = true, env = "BOLTQ_CA_FILE", hide_env = true, value_name = "FILE")]
    ca_file: Option<OsString>,
    /// Certificate to show to the server, in PEM
    #[arg(long, global = true, env = "BOLTQ_TLS_CERT", hide_env = true, value_name = "FILE")]
    cert_file: Option<OsString>,
    /// Private key of that certificate, in PEM
    #[arg(long, global = true, env = "BOLTQ_TLS_KEY", hide_env = true, value_name = "FILE")]
    key_file: Option<OsString>,
    /// Name that the certificate of the server has to have [default: the host of its address]
    #[arg(
        long,
        global = true,
        env = "BOLTQ_TLS_SERVER_NAME",
        hide_env = true,
        value_name = "NAME"
    )]
    tls_server_name: Option<OsString>,
    /// Believe every server, which is no protection against who is in between; also BOLTQ_TLS_INSECURE
    #[arg(long, global = true)]
    tls_insecure: bool,
}

/// What an empty variable has not set is not set.
fn set(value: Option<&OsString>) -> Option<OsString> {
    value.filter(|value| !value.is_empty()).cloned()
}

fn is_on(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| means_on(&value))
}

fn means_on(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on")
}

impl Tls {
    /// Whether anything here asks for TLS.
    pub(crate) fn is_asked_for(&self) -> bool {
        let values = [&self.ca_file, &self.cert_file, &self.key_file, &self.tls_server_name];
        self.tls
            || self.is_insecure()
            || is_on("BOLTQ_TLS_ENABLED")
            || values.into_iter().any(|value| set(value.as_ref()).is_some())
    }

    /// Whether every server is believed.
    pub(crate) fn is_insecure(&self) -> bool {
        self.tls_insecure || is_on("BOLTQ_TLS_INSECURE")
    }

    /// Whom to believe; `None`: those whom the system believes.
    pub(crate) fn ca_file(&self) -> Option<PathBuf> {
        set(self.ca_file.as_ref()).map(PathBuf::from)
    }

    /// Certificate and key to show.
    ///
    /// # Errors
    /// One of them is missing.
    pub(crate) fn identity(&self) -> Result<Option<(PathBuf, PathBuf)>, String> {
        match (set(self.cert_file.as_ref()), set(self.key_file.as_ref())) {
            (Some(cert), Some(key)) => Ok(Some((cert.into(), key.into()))),
            (None, None) => Ok(None),
            (Some(_), None) => Err("a certificate needs its key: --key-file or BOLTQ_TLS_KEY".to_owned()),
            (None, Some(_)) => Err("a key needs its certificate: --cert-file or BOLTQ_TLS_CERT".to_owned()),
        }
    }

    /// The name that is wanted, if it is not that of the address.
    pub(crate) fn server_name(&self) -> Option<String> {
        set(self.tls_server_name.as_ref()).map(|name| name.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_is_on_however_it_is_spelled() {
        assert!(["true", "TRUE", "1", "yes", "on"].into_iter().all(means_on));
        assert!(!["", "false", "0", "no", "off"].into_iter().any(means_on));
    }

    #[test]
    fn certificate_and_key_come_together_and_empty_ones_are_none() {
        let tls = |cert: &str, key: &str| Tls {
            cert_file: Some(cert.into()),
            key_file: Some(key.into()),
            ..Tls::default()
        };
        assert_eq!(tls("c", "k").identity(), Ok(Some(("c".into(), "k".into()))));
        assert_eq!(tls("", "").identity(), Ok(None));
        assert!(!tls("", "").is_asked_for() && tls("c", "k").is_asked_for());
        assert!(tls("c", "").identity().is_err_and(|why| why.contains("BOLTQ_TLS_KEY")));
        assert!(tls("", "k").identity().is_err_and(|why| why.contains("BOLTQ_TLS_CERT")));
    }
}
