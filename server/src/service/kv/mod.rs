//! The key-value cache: one function per operation.
//!
//! The leader reads and writes, so whoever reads sees what was answered before. Watching is for any node.

mod error;
mod read;
mod watch;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use boltq_core::limits::FRAME_BYTES_MAX;
use boltq_kv::command::TimeToLive;
use parking_lot::Mutex;

pub use self::error::KvError;
pub use self::read::KvStats;
pub use self::watch::{KvEvent, KvWatch, WatchEnd};
use super::queue::Queues;
use crate::config::CacheConfig;

/// Bytes of a key at most.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Bytes of a value at most. A request has room for a key beside it.
pub const VALUE_BYTES_MAX: usize = FRAME_BYTES_MAX - 16 * KEY_BYTES_MAX;
/// Keys that are looked at while nobody else can write.
const LOOKED_AT_MAX: usize = 1_000;

/// The cache as the doors use it; clones are cheap and share it.
#[derive(Clone)]
pub struct Kv {
    inner: Arc<Inner>,
}

struct Inner {
    queues: Queues,
    config: CacheConfig,
    hits: AtomicU64,
    misses: AtomicU64,
    /// Keys that were read since the last write, if it matters.
    reads: Mutex<VecDeque<String>>,
}

impl Kv {
    /// The cache of the plane of `queues`.
    #[must_use]
    pub fn new(queues: Queues, config: CacheConfig) -> Self {
        Self {
            inner: Arc::new(Inner {
                queues,
                config,
                hits: AtomicU64::new(0),
                misses: AtomicU64::new(0),
                reads: Mutex::default(),
            }),
        }
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.inner.config.enabled
    }

    /// How long a value lives of which nothing is said.
    #[must_use]
    pub fn default_ttl(&self) -> TimeToLive {
        TimeToLive::from_millis(self.inner.config.default_ttl_ms)
    }

    fn enabled(&self) -> Result<(), KvError> {
        if self.inner.config.enabled {
            Ok(())
        } else {
            Err(KvError::Off)
        }
    }

    fn check(&self, key: &str) -> Result<(), KvError> {
        self.enabled()?;
        match key.len() {
            1..=KEY_BYTES_MAX => Ok(()),
            bytes => Err(KvError::Key { bytes }),
        }
    }
}
