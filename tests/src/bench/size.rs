//! Memory and start time.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::QUEUE;
use super::load::Failure;
use super::load_grpc::fill;
use super::target::start_broker;
use crate::harness::grpc::{QueueCalls, connect};
use crate::harness::{Server, ServerOptions};

const MILLION: u64 = 1_000_000;
/// Memory is read when it has not moved by more than a page or two for this long: allocators give memory back late.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_WITHIN: Duration = Duration::from_secs(10);

/// What one server showed, from its first start on an empty directory.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Size {
    pub(super) start_empty_s: f64,
    pub(super) idle_bytes: f64,
    pub(super) million_bytes: f64,
    /// After kill -9.
    pub(super) start_million_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ten_million_bytes: Option<f64>,
}

/// Starts, fills, kills, starts again and fills again.
pub(super) async fn measure(options: &ServerOptions, with_ten_million: bool) -> Result<Size, Failure> {
    let mut server = start_broker(options)?;
    let start_empty_s = server.started_in().as_secs_f64();
    let idle_bytes = settled_memory(&server).await;
    fill(server.messaging(), MILLION).await?;
    let million_bytes = settled_memory(&server).await;
    server.restart();
    let start_million_s = server.started_in().as_secs_f64();
    expect_ready(&server, MILLION).await?;
    let mut size = Size {
        start_empty_s,
        idle_bytes,
        million_bytes,
        start_million_s,
        ten_million_bytes: None,
    };
    if with_ten_million {
        fill(server.messaging(), 9 * MILLION).await?;
        size.ten_million_bytes = Some(settled_memory(&server).await);
        expect_ready(&server, 10 * MILLION).await?;
    }
    Ok(size)
}

/// A start that is quick because it forgot something is no result.
async fn expect_ready(server: &Server, messages: u64) -> Result<(), Failure> {
    let ready = connect(server.messaging()).await.look(QUEUE).await.ready;
    if ready != messages {
        return Err(format!("{messages} messages were stored and {ready} are ready").into());
    }
    Ok(())
}

pub(super) async fn settled_memory(server: &Server) -> f64 {
    let started = Instant::now();
    let (mut last, mut since) = (server.stat().rss_bytes(), Instant::now());
    while since.elapsed() < QUIET && started.elapsed() < QUIET_WITHIN {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = server.stat().rss_bytes();
        if now.abs_diff(last) > 64 * 1024 {
            (last, since) = (now, Instant::now());
        }
    }
    server.stat().rss_bytes() as f64
}
