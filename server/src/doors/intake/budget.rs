//! The budgets: one of the node, one of each connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::answers::{Answers, Reader};
use super::watch::Watch;
use super::window::Windows;
use crate::config::ServerConfig;
use crate::telemetry::DoorMetrics;

/// When another try makes sense for who was refused because all are together too many.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a request is not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::doors) enum Refusal {
    #[error(
        "unfinished requests of this connection would take more than {max} bytes \
         (server.max_request_bytes_per_connection); send fewer at a time"
    )]
    Connection { max: usize },
    #[error("unfinished requests would take more than {max} bytes (server.max_request_bytes); try again later")]
    Node { max: usize },
    #[error("the request made no progress for {} s (server.request_stall_timeout); send it again", after.as_secs_f32())]
    Stalled { after: Duration },
}

impl Refusal {
    /// Status of HTTP, and after how long the same request may succeed, if that depends on others.
    pub(in crate::doors) fn over_http(self) -> (StatusCode, Option<Duration>) {
        match self {
            Self::Connection { .. } | Self::Node { .. } => (StatusCode::TOO_MANY_REQUESTS, Some(RETRY_AFTER)),
            Self::Stalled { .. } => (StatusCode::REQUEST_TIMEOUT, None),
        }
    }
}

/// The budget of the node. One for all ports.
#[derive(Debug)]
pub struct Intake {
    bytes_max: usize,
    connection_bytes_max: usize,
    bytes: AtomicUsize,
    answers: Arc<Answers>,
    pub(super) windows: Windows,
    pub(super) watch: Watch,
    metrics: Arc<DoorMetrics>,
}

impl Intake {
    /// With nothing in it.
    pub fn new(config: &ServerConfig, metrics: Arc<DoorMetrics>) -> Arc<Self> {
        Arc::new(Self {
            bytes_max: config.request_bytes_max,
            connection_bytes_max: config.connection_request_bytes_max,
            bytes: AtomicUsize::new(0),
            answers: Answers::new(
                config.request_bytes_max,
                config.connection_request_bytes_max,
                config.idle_write_timeout,
            ),
            windows: Windows::new(config.request_bytes_max),
            watch: Watch::new(config.request_stall_timeout),
            metrics,
        })
    }

    /// Gives up requests that make no progress. Runs until it is dropped.
    pub async fn watch(self: Arc<Self>) {
        self.watch.run(&self.metrics).await;
    }

    /// The budget of a new connection.
    pub(in crate::doors) fn connection(self: &Arc<Self>) -> Arc<Connection> {
        let evicted = CancellationToken::new();
        Arc::new(Connection {
            intake: self.clone(),
            bytes: AtomicUsize::new(0),
            reader: self.answers.reader(evicted.clone()),
            evicted,
        })
    }
}

/// The budget of a connection.
#[derive(Debug)]
pub(in crate::doors) struct Connection {
    pub(super) intake: Arc<Intake>,
    bytes: AtomicUsize,
    reader: Arc<Reader>,
    evicted: CancellationToken,
}

impl Connection {
    /// Something that can hold bytes.
    pub(in crate::doors) fn account(self: &Arc<Self>) -> Account {
        Account::new(self.clone())
    }

    /// Who reads its answers.
    pub(super) fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Returns when the connection has to be closed because one of its requests makes no progress and does not end
    /// either, or because its answers are not read.
    pub(in crate::doors) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    pub(super) fn evict(&self) {
        self.evicted.cancel();
    }

    pub(super) fn take(&self, bytes: usize) -> Result<(), Refusal> {
        let intake = &*self.intake;
        if !add(&self.bytes, bytes, intake.connection_bytes_max) {
            let max = intake.connection_bytes_max;
            return Err(Refusal::Connection { max });
        }
        if !add(&intake.bytes, bytes, intake.bytes_max) {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refusal::Node { max: intake.bytes_max });
        }
        Ok(())
    }

    pub(super) fn count_refusal(&self) {
        self.intake.metrics.requests_refused.increment();
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.intake.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Nothing is ordered by these numbers. For a moment a sum may be above its limit, which can refuse another asker that
/// would only just have fitted.
fn add(sum: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let fits = sum.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= max;
    if !fits {
        sum.fetch_sub(bytes, Ordering::Relaxed);
    }
    fits
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::doors) fn intake(bytes_max: usize, connection_bytes_max: usize, stall: Duration) -> Arc<Intake> {
        Arc::new(Intake {
            bytes_max,
            connection_bytes_max,
            bytes: AtomicUsize::new(0),
            answers: Answers::new(bytes_max, connection_bytes_max, stall),
            windows: Windows::new(bytes_max),
            watch: Watch::new(stall),
            metrics: Arc::default(),
        })
    }

    #[test]
    fn the_newest_asker_is_refused_and_what_is_given_back_is_there_for_others() {
        let intake = intake(100, 60, Duration::from_secs(30));
        let (one, two) = (intake.connection(), intake.connection());
        let mut first = one.account();
        first.hold(60).unwrap();
        assert_eq!(first.hold(61), Err(Refusal::Connection { max: 60 }));
        let mut second = two.account();
        assert_eq!(second.hold(41), Err(Refusal::Node { max: 100 }));
        second.hold(40).unwrap();
        first.hold(10).unwrap();
        second.hold(60).unwrap();
        drop((first, second));
        assert_eq!(intake.bytes.load(Ordering::Relaxed), 0);
        assert_eq!(one.bytes.load(Ordering::Relaxed), 0);
        assert_eq!(intake.metrics.requests_refused.get(), 2);
    }
}
