//! The configuration a server is started with.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio_rustls::rustls::ClientConfig;

/// A configuration file in the making. What is not set is left to the server's defaults.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    config: Value,
    open_files_max: Option<(u32, u32)>,
    /// How the harness itself speaks to the admin port, if that speaks TLS.
    tls: Option<Arc<ClientConfig>>,
}

impl ServerOptions {
    /// `storage.mode` disk, synced before each answer.
    pub fn disk() -> Self {
        Self::with_mode("disk").set("storage.sync", "always")
    }

    /// `storage.mode` memory.
    pub fn memory() -> Self {
        Self::with_mode("memory")
    }

    /// What a configuration file says.
    ///
    /// # Panics
    /// When it is no JSON.
    pub fn from_json(text: &str) -> Self {
        Self {
            config: serde_json::from_str(text).expect("a configuration in JSON"),
            open_files_max: None,
            tls: None,
        }
    }

    /// The admin port speaks TLS, and this is how to speak to it.
    #[must_use]
    pub fn tls(mut self, client: Arc<ClientConfig>) -> Self {
        self.tls = Some(client);
        self
    }

    /// How to speak to the admin port, if it speaks TLS.
    pub(super) fn tls_client(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }

    fn with_mode(mode: &str) -> Self {
        Self::from_json("{}")
            .set("storage.mode", mode)
            .set("server.host", "127.0.0.1")
    }

    /// Sets a key, written with dots: `queue.max_retry`.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        let mut place = &mut self.config;
        for part in key.split('.') {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place = &mut place[part];
        }
        *place = value.into();
        self
    }

    /// Starts the process with these limits of file handles: soft and hard.
    #[must_use]
    pub fn open_files_max(mut self, soft: u32, hard: u32) -> Self {
        self.open_files_max = Some((soft, hard));
        self
    }

    /// The command that starts `program`.
    pub(super) fn command(&self, program: &Path) -> Command {
        let Some((soft, hard)) = self.open_files_max else {
            return Command::new(program);
        };
        let mut command = Command::new("sh");
        // The soft limit first: it cannot be above the hard one.
        let limited = format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\" \"$@\"");
        command.args(["-c", &limited]).arg(program);
        command
    }

    /// The value of a key, if it was set.
    pub fn get(&self, key: &str) -> Option<&Value> {
        key.split('.').try_fold(&self.config, |place, part| place.get(part))
    }

    /// The text of the configuration file.
    pub fn to_json(&self) -> String {
        self.config.to_string()
    }
}
