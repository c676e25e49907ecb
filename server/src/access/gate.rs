//! The decision.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::client::Client;
use super::grant::Grant;
use super::keyring::Keyring;
use super::operations::Operation;
use super::policy::AccessPolicy;
use super::role::{Need, Roles};
use super::throttle::Throttle;
use crate::config::{Config, SecurityConfig};
use crate::seldom::Seldom;
use crate::telemetry::DoorMetrics;

/// Between two lines about attempts that failed: who guesses must not fill the log.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Why somebody is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No key, or a wrong one.
    #[error("unauthorized")]
    Unauthorized,
    /// The address has failed too often; nothing was looked at.
    #[error("too many failed attempts from this address; try again in {} s", wait.as_secs() + 1)]
    TooMany {
        /// Until the next attempt is looked at.
        wait: Duration,
    },
    /// The key is for other things.
    #[error("{} needs a key with the role {}; the key {id:?} has {roles}", operation.name, operation.need)]
    Forbidden {
        /// What was asked for.
        operation: Operation,
        /// What the key is called.
        id: String,
        /// What it is for.
        roles: Roles,
    },
}

/// Who may do what. Shared by all doors.
pub struct Access {
    keyring: RwLock<Arc<Keyring>>,
    policy: RwLock<AccessPolicy>,
    throttle: Mutex<Throttle>,
    log: Mutex<FailureLog>,
    metrics: Arc<DoorMetrics>,
}

/// What was not said yet.
#[derive(Debug, Default)]
struct FailureLog {
    said: Option<Instant>,
    unsaid: u64,
}

impl Access {
    /// As configured.
    #[must_use]
    pub fn new(config: &Config, metrics: Arc<DoorMetrics>) -> Arc<Self> {
        Arc::new(Self {
            keyring: RwLock::new(Arc::new(Keyring::new(&config.security))),
            policy: RwLock::new(config.into()),
            throttle: Mutex::default(),
            log: Mutex::default(),
            metrics,
        })
    }

    /// From now on as in this configuration. Who was let in by what is gone, has to leave.
    pub fn change(&self, config: &Config) {
        *self.policy.write() = config.into();
        self.replace_keys(&config.security);
    }

    fn replace_keys(&self, config: &SecurityConfig) {
        let mut keyring = self.keyring.write();
        *keyring = Arc::new(Keyring::new(config).succeed(&keyring));
    }

    /// Whether a key is wanted at all.
    #[must_use]
    pub fn is_required(&self) -> bool {
        !self.keyring.read().is_open()
    }

    /// What everybody may do where no key is wanted.
    #[must_use]
    pub fn open(&self) -> Option<Grant> {
        self.keyring.read().open()
    }

    /// Serves a connection until it ends, or until it has had the time to show a key and has not.
    pub async fn while_patient(&self, client: &Client, serving: Pin<&mut impl Future<Output = ()>>) {
        let mut too_late = Seldom::new(async {
            sleep(self.policy().auth_timeout).await;
            if client.is_let_in() || !self.is_required() {
                pending::<()>().await;
            }
        });
        tokio::select! {
            biased;
            () = serving => {}
            () = too_late.happened() => debug!(peer = ?client.peer(), "closing a connection that shows no key"),
        }
    }

    /// Bounds for who is not known yet.
    #[must_use]
    pub fn policy(&self) -> AccessPolicy {
        *self.policy.read()
    }

    /// Who shows this key. A failure is counted.
    ///
    /// # Errors
    /// It is none, or nobody looks at it.
    pub fn identify(&self, client: &Client, shown: &[u8]) -> Result<Grant, Denied> {
        let keyring = self.keyring.read().clone();
        let grant = keyring.grant(shown);
        if keyring.is_open() {
            client.let_in(None);
            return grant.ok_or(Denied::Unauthorized);
        }
        let is_known = grant.as_ref().is_some_and(|grant| client.has_proven(grant));
        if !is_known && let Some(wait) = self.wait(client) {
            // Right or wrong, it is answered the same.
            self.metrics.authentications_throttled.increment();
            return Err(Denied::TooMany { wait });
        }
        let Some(grant) = grant else {
            self.fail(client, !shown.is_empty());
            return Err(Denied::Unauthorized);
        };
        client.let_in(Some(&grant));
        Ok(grant)
    }

    /// Whether this is a right key. Says and counts nothing about one that is not: whoever asks has it identified too.
    #[must_use]
    pub fn knows(&self, client: &Client, shown: &[u8]) -> bool {
        let grant = self.keyring.read().grant(shown).filter(|_| self.wait(client).is_none());
        if let Some(grant) = &grant {
            client.let_in(Some(grant));
        }
        grant.is_some()
    }

    /// Counts an attempt that failed. Who shows nothing has guessed nothing.
    pub fn fail(&self, client: &Client, guessed: bool) {
        self.metrics.authentications_failed.increment();
        let Some(peer) = client.peer() else { return };
        let (per_minute, now) = (self.policy().auth_failures_per_minute, Instant::now());
        let emptied = guessed && self.throttle.lock().fail(peer.ip(), per_minute, now);
        let mut log = self.log.lock();
        log.unsaid += 1;
        if emptied || log.said.is_none_or(|at| now.saturating_duration_since(at) >= LOG_PAUSE) {
            let failed = std::mem::take(&mut log.unsaid);
            log.said = Some(now);
            drop(log);
            if emptied {
                warn!(
                    %peer,
                    failed,
                    per_minute,
                    "too many failed attempts from an address: nothing that it shows is looked at for a while \
                     (security.auth_failures_per_minute)"
                );
            } else {
                warn!(%peer, failed, "wrong or missing API key");
            }
        }
    }

    /// Who shows this key, if it may do this. What needs no key is for everybody; then there is nothing that could be
    /// revoked.
    ///
    /// # Errors
    /// It may not.
    pub fn admit(&self, client: &Client, shown: &[u8], operation: Operation) -> Result<Option<Grant>, Denied> {
        if operation.need == Need::Nothing {
            client.let_in(None);
            return Ok(None);
        }
        let grant = self.identify(client, shown)?;
        self.allow(&grant, operation)?;
        Ok(Some(grant))
    }

    /// Whether who is known may do this.
    ///
    /// # Errors
    /// The key is for other things.
    pub fn allow(&self, grant: &Grant, operation: Operation) -> Result<(), Denied> {
        if grant.may(operation.need) {
            return Ok(());
        }
        self.metrics.requests_forbidden.increment();
        Err(Denied::Forbidden {
            operation,
            id: grant.id().to_owned(),
            roles: grant.roles(),
        })
    }

    fn wait(&self, client: &Client) -> Option<Duration> {
        let per_minute = self.policy().auth_failures_per_minute;
        self.throttle
            .lock()
            .wait(client.peer()?.ip(), per_minute, Instant::now())
    }
}
