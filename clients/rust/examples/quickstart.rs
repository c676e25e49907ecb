//! Publishes a few messages, works on them, and uses the cache: `cargo run --example quickstart -- localhost:9091`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use boltq::{Client, Delivery, Failed, Message};

const MESSAGES: u32 = 10;

#[tokio::main]
#[allow(clippy::print_stdout)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addresses: Vec<String> = std::env::args().skip(1).collect();
    let client = Client::builder().addresses(addresses).connect().await?;
    let emails = client.queue("emails");
    for number in 0..MESSAGES {
        let message = Message::new(format!(r#"{{"number":{number}}}"#))
            .content_type("application/json")
            .ttl(Duration::from_secs(3_600));
        emails.publish(message).await?;
    }

    let done = Arc::new(AtomicU32::new(0));
    let counter = done.clone();
    let worker = emails.worker().concurrency(4).start(move |delivery: Delivery| {
        let done = counter.clone();
        async move {
            println!("{}", std::str::from_utf8(delivery.payload())?);
            done.fetch_add(1, Ordering::Relaxed);
            Ok::<(), Failed>(())
        }
    });
    while done.load(Ordering::Relaxed) < MESSAGES {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.stop().await?;

    client.kv().set("last run", "ok").await?;
    println!("done: {}", client.kv().increment("runs", 1).await?);
    Ok(())
}
