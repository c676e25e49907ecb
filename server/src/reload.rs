//! Applying a changed configuration to a node that runs.
//!
//! Only what is listed in [`RELOADABLE`] is applied. The rest stays as it was at the start, and each key of it that has changed
//! is named, every time, until the restart that it needs.

use std::sync::Arc;

use tracing::{error, info, warn};

use crate::access::Access;
use crate::config::{Config, ConfigError, Loaded, RELOADABLE, Values};
use crate::telemetry::LogHandle;
use crate::tls::{Looked, TlsStore};

/// What can change.
pub struct Reloader {
    access: Arc<Access>,
    tls: Option<Arc<TlsStore>>,
    log: LogHandle,
    in_effect: Values,
}

impl Reloader {
    /// Of a node that was started with these values.
    #[must_use]
    pub fn new(access: Arc<Access>, tls: Option<Arc<TlsStore>>, log: LogHandle, in_effect: Values) -> Self {
        Self {
            access,
            tls,
            log,
            in_effect,
        }
    }

    /// Applies what was read, or changes nothing if it could not be read. Blocks while files of TLS are read.
    pub fn apply(&mut self, loaded: Result<Loaded, ConfigError>) {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(why) => {
                error!(%why, "the configuration cannot be used; nothing is changed");
                return;
            }
        };
        for warning in &loaded.warnings {
            warn!("{warning}");
        }
        let (applied, fixed): (Vec<_>, Vec<_>) = self
            .in_effect
            .changed(&loaded.values)
            .into_iter()
            .partition(|key| RELOADABLE.contains(key));
        let tls = self.apply_tls(&loaded.config);
        self.access.change(&loaded.config);
        self.log.set_level(&loaded.config.log.level);
        let applied: Vec<_> = applied
            .into_iter()
            .filter(|key| tls != Looked::Refused || !key.starts_with("server.tls."))
            .collect();
        for key in &applied {
            self.in_effect.take(key, &loaded.values);
        }
        for key in fixed {
            warn!(key, "the value has changed, and takes effect with a restart");
        }
        info!(applied = applied.join(", "), "read the configuration again");
    }

    /// Also if only what is in the files has changed.
    fn apply_tls(&self, config: &Config) -> Looked {
        match (&self.tls, &config.server.tls) {
            (Some(store), Some(files)) => store.replace(files),
            // Switching it on or off needs a restart, which is said of its key.
            _ => Looked::Same,
        }
    }
}
