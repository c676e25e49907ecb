//! Measures this client against a server that runs; `clients/README.md` has the contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use boltq::{Client, Confirmation, Delivery, Failed, PublisherOptions, Queue, Result};

const HANDLERS: u32 = 64;
const POLL: Duration = Duration::from_millis(1);

#[tokio::main(worker_threads = 2)]
#[allow(clippy::print_stdout)]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let case = option("--case").unwrap_or_default();
    let messages: u64 = option("--messages").ok_or("--messages is missing")?.parse()?;
    let payload: usize = option("--payload").ok_or("--payload is missing")?.parse()?;
    let address = option("--address").ok_or("--address is missing")?;
    let client = Client::builder()
        .address(address)
        .idempotent_publishes(false)
        .connect()
        .await?;
    let queue = client.queue(format!("bench-rust-{}", std::process::id()));
    let mut seconds = 0.0;
    // The first one warms up.
    for count in [messages / 10, messages] {
        seconds = match case.as_str() {
            "publish_batches" => batches(&queue, count, payload).await?,
            "publish_single" => singles(&queue, count, payload).await?,
            "worker" => worker(&queue, count, payload).await?,
            _ => return Err("--case is publish_batches, publish_single or worker".into()),
        };
    }
    queue.delete(false).await?;
    #[allow(clippy::cast_precision_loss)]
    let rate = messages as f64 / seconds;
    println!(
        r#"{{"client": "rust", "case": "{case}", "messages": {messages}, "payload_bytes": {payload}, "seconds": {seconds:.6}, "messages_per_second": {rate:.1}}}"#
    );
    Ok(())
}

fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

async fn batches(queue: &Queue, count: u64, payload: usize) -> Result<f64> {
    let publisher = queue.publisher(PublisherOptions::default());
    let payload = bytes::Bytes::from(vec![b'x'; payload]);
    let begun = Instant::now();
    let mut waiting: Vec<Confirmation> = Vec::new();
    for _ in 0..count {
        waiting.push(publisher.publish(payload.clone()).await?);
        // Not all of them at a time, or the list is what is measured.
        if waiting.len() == 10_000 {
            for confirmation in waiting.drain(..5_000) {
                confirmation.await?;
            }
        }
    }
    for confirmation in waiting {
        confirmation.await?;
    }
    publisher.close().await;
    Ok(begun.elapsed().as_secs_f64())
}

async fn singles(queue: &Queue, count: u64, payload: usize) -> Result<f64> {
    let payload = bytes::Bytes::from(vec![b'x'; payload]);
    let begun = Instant::now();
    for _ in 0..count {
        queue.publish(payload.clone()).await?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

async fn worker(queue: &Queue, count: u64, payload: usize) -> Result<f64> {
    batches(queue, count, payload).await?;
    let done = Arc::new(AtomicU64::new(0));
    let counter = done.clone();
    let begun = Instant::now();
    let worker = queue.worker().concurrency(HANDLERS).start(move |_: Delivery| {
        let done = counter.clone();
        async move {
            done.fetch_add(1, Ordering::Relaxed);
            Ok::<(), Failed>(())
        }
    });
    while done.load(Ordering::Relaxed) < count {
        tokio::time::sleep(POLL).await;
    }
    worker.stop().await?;
    Ok(begun.elapsed().as_secs_f64())
}
