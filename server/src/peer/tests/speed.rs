//! How fast calls are over loopback: `cargo test --release -p boltq-server peer::tests::speed -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use boltq_raft::Transport;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;

use super::support::{GROUP, Node, WITHIN, with_secret};

const LASTS: Duration = Duration::from_secs(3);

async fn measure(bytes: usize, outstanding: usize) {
    let (one, two) = (
        Node::echo(1, with_secret("s")).await,
        Node::echo(2, with_secret("s")).await,
    );
    let request = Bytes::from(vec![1; bytes]);
    one.call(&two.peer, b"x").await.unwrap();
    let started = Instant::now();
    let mut took: Vec<Duration> = stream::repeat(())
        .take_while(|()| std::future::ready(started.elapsed() < LASTS))
        .map(|()| {
            let called = Instant::now();
            let call = one.peers.call(&two.peer, GROUP, request.clone(), WITHIN);
            async move {
                call.await.unwrap();
                called.elapsed()
            }
        })
        .buffer_unordered(outstanding)
        .collect()
        .await;
    let rate = took.len() as f64 / started.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 1_000];
    println!(
        "{bytes:>6} B, {outstanding:>4} outstanding: {rate:>8.0} calls/s, {:>6.0} MB/s each way, p50 {:?}, p99 {:?}, worst {:?}",
        rate * bytes as f64 / 1e6,
        at(500),
        at(990),
        at(1_000)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn calls_over_loopback() {
    for (bytes, outstanding) in [
        (200, 1),
        (200, 64),
        (200, 1_000),
        (64 << 10, 1),
        (64 << 10, 16),
        (1 << 20, 4),
    ] {
        measure(bytes, outstanding).await;
    }
}
