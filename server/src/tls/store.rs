//! The material in use, and its replacement by newer files.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock};
use tracing::{error, info, warn};

use super::material::{Material, TlsError};
use crate::config::ServerTls;

/// How often the files are looked at. Small, and read whole: dates of files do not tell what was renamed or linked over.
const LOOK: Duration = Duration::from_secs(5);
/// A certificate that ends within this time is worth a line in the log.
const SOON: Duration = Duration::from_secs(14 * 24 * 3_600);

/// See the module.
pub struct TlsStore {
    /// Where the files are.
    files: Mutex<ServerTls>,
    current: RwLock<Arc<Material>>,
    /// Why the files that are there are not in use, if they are not. Said once.
    refused: Mutex<Option<String>>,
    /// Held while the files are read.
    looking: Mutex<()>,
}

/// What a look at the files gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// They have not changed.
    Same,
    /// They are in use from the next handshake on.
    Replaced,
    /// They cannot be used; what was in use stays.
    Refused,
}

impl TlsStore {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// One is missing, or they do not belong together.
    pub fn load(files: &ServerTls) -> Result<Arc<Self>, TlsError> {
        let material = Material::load(files)?;
        warn_of_expiry(&material);
        Ok(Arc::new(Self {
            files: Mutex::new(files.clone()),
            current: RwLock::new(Arc::new(material)),
            refused: Mutex::default(),
            looking: Mutex::default(),
        }))
    }

    /// Whether the files can be used. Blocks.
    ///
    /// # Errors
    /// As [`TlsStore::load`].
    pub fn check(files: &ServerTls) -> Result<(), TlsError> {
        Material::load(files).map(drop)
    }

    pub(super) fn current(&self) -> Arc<Material> {
        self.current.read().clone()
    }

    /// When the certificate in use ends.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.current().expires
    }

    /// Whether the files are others than what is in use, and cannot be used.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.refused.lock().is_some()
    }

    /// Takes other files from now on, if they can be used. Blocks.
    pub fn replace(&self, files: &ServerTls) -> Looked {
        let looked = self.take(files);
        if looked != Looked::Refused {
            *self.files.lock() = files.clone();
        }
        looked
    }

    /// Takes what is in the files now, if it can be used. Blocks.
    pub fn look(&self) -> Looked {
        let files = self.files.lock().clone();
        self.take(&files)
    }

    /// Looks every few seconds; never returns.
    pub async fn keep_looking(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let store = self.clone();
            // It does not panic, and is not cancelled.
            let _ = tokio::task::spawn_blocking(move || store.look()).await;
        }
    }

    /// What was read, unless its certificate has ended and the one in use has not: with that one clients can still connect.
    fn unless_over(&self, material: Material) -> Result<Material, String> {
        if is_over(material.expires) && !is_over(self.expires()) {
            return Err("server.tls: the new certificate has ended, and the one in use has not".to_owned());
        }
        Ok(material)
    }

    fn take(&self, files: &ServerTls) -> Looked {
        // Whoever wants to know what is in use does not wait for the device that the files are on.
        let _one_at_a_time = self.looking.lock();
        let loaded = Material::load(files).map_err(|why| why.to_string());
        let loaded = loaded.and_then(|material| self.unless_over(material));
        let mut refused = self.refused.lock();
        let material = match loaded {
            Ok(material) => material,
            Err(why) => {
                if refused.as_ref() != Some(&why) {
                    error!(%why, "the new files of TLS cannot be used; those that were read before stay in use");
                }
                *refused = Some(why);
                return Looked::Refused;
            }
        };
        *refused = None;
        let same_settings = self.files.lock().client_auth == files.client_auth;
        if material.digest == self.current().digest && same_settings {
            return Looked::Same;
        }
        warn_of_expiry(&material);
        info!(
            expires_unix = unix_seconds(material.expires),
            "new files of TLS are in use"
        );
        *self.current.write() = Arc::new(material);
        Looked::Replaced
    }
}

/// Whether a certificate that ends then has ended.
fn is_over(expires: Option<SystemTime>) -> bool {
    expires.is_some_and(|expires| expires <= SystemTime::now())
}

fn warn_of_expiry(material: &Material) {
    let Some(expires) = material.expires else {
        warn!("the certificate of server.tls does not say until when it holds");
        return;
    };
    if expires < SystemTime::now() + SOON {
        warn!(
            expires_unix = unix_seconds(Some(expires)),
            "the certificate of server.tls ends within two weeks, or has ended"
        );
    }
}

fn unix_seconds(time: Option<SystemTime>) -> Option<u64> {
    let since = time?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}
