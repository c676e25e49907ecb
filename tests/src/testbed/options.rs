//! What kind of servers.

use std::io;

use clap::{Parser, ValueEnum};
use serde_json::Value;

use crate::harness::ServerOptions;

/// Starts BoltQ servers for tests, and does to them what its input says.
#[derive(Debug, Parser)]
#[command(name = "boltq-testbed", version)]
pub struct TestBedOptions {
    /// 1: a server that is alone; more: a cluster of so many voters.
    #[arg(long, default_value_t = 1)]
    pub nodes: usize,
    /// Where they store.
    #[arg(long, value_enum, default_value_t = Storage::Disk)]
    pub storage: Storage,
    /// A key of the configuration; the value is JSON, or else a text.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Both ports for clients speak TLS.
    #[arg(long)]
    pub tls: bool,
    /// The same, and clients have to show a certificate.
    #[arg(long)]
    pub mtls: bool,
}

/// `storage.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Storage {
    /// Files, each write synced.
    Disk,
    /// Nothing survives a process.
    Memory,
}

impl TestBedOptions {
    /// The configuration that all nodes have in common, without TLS.
    ///
    /// # Errors
    /// A setting has no `=`.
    pub fn server(&self) -> io::Result<ServerOptions> {
        let base = match self.storage {
            Storage::Disk => ServerOptions::disk(),
            Storage::Memory => ServerOptions::memory(),
        };
        self.settings.iter().try_fold(base, |options, setting| {
            let (key, value) = setting.split_once('=').ok_or_else(|| {
                let what = format!("--set {setting:?} has no \"=\"; write --set queue.max_retry=3");
                io::Error::new(io::ErrorKind::InvalidInput, what)
            })?;
            let json = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            Ok(options.set(key, json))
        })
    }
}
