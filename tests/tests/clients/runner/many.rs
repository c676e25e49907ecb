//! Steps with many messages, which are numbered.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use boltq::{
    Client, Confirmation, ConsumeOptions, Delivery, Error, Failed, NotSettled, Publisher, PublisherOptions, WorkerError,
};
use serde_json::{Value, json};

use super::context::Progress;
use super::steps::text;
use super::{answers, duration};

/// Messages of `many.publish` that are not confirmed.
const UNCONFIRMED_MAX: usize = 64;
const POLL: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_millis(10);

/// A publisher for the topic or queue that a step names.
pub(super) fn publisher(client: &Client, step: &Value, options: PublisherOptions) -> Publisher {
    match step["topic"].as_str() {
        Some(topic) => client.topic(topic).publisher(options),
        None => client.queue(text(step, "queue")).publisher(options),
    }
}

pub(super) async fn publish(client: &Client, step: &Value, progress: &Progress) -> Result<Value, Error> {
    let options = PublisherOptions {
        max_messages: UNCONFIRMED_MAX,
        ..PublisherOptions::default()
    };
    let publisher = publisher(client, step, options);
    let count = step["count"].as_u64().unwrap_or(u64::MAX);
    let mut waiting: VecDeque<Confirmation> = VecDeque::new();
    let mut failed = 0;
    let mut settle = async |waiting: &mut VecDeque<Confirmation>, most: usize| {
        while waiting.len() > most {
            match waiting.pop_front().expect("one that waits").await {
                Ok(_) => _ = progress.reached.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    println!("a publish failed: {error}");
                    failed += 1;
                }
            }
        }
    };
    for number in 0..count {
        if *progress.stop.borrow() {
            break;
        }
        waiting.push_back(publisher.publish(number.to_string()).await?);
        settle(&mut waiting, UNCONFIRMED_MAX / 2).await;
    }
    settle(&mut waiting, 0).await;
    publisher.close().await;
    Ok(json!({"confirmed": progress.reached.load(Ordering::Relaxed), "failed": failed}))
}

/// What handlers share.
struct Seen {
    numbers: Mutex<HashSet<u64>>,
    unexpected: AtomicU64,
    failed: AtomicU64,
    until: u64,
    fail_every: u64,
    reached: Arc<AtomicU64>,
}

impl Seen {
    fn handle(&self, delivery: &Delivery) -> Result<(), Failed> {
        let number = answers::text(delivery.payload())
            .parse()
            .ok()
            .filter(|number| *number < self.until);
        let Some(number): Option<u64> = number else {
            self.unexpected.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        if self.fail_every > 0 && number % self.fail_every == 0 && delivery.attempts() == 0 {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return Err(Failed::retry_after(RETRY, "as the scenario says"));
        }
        if self
            .numbers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number)
        {
            self.reached.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

pub(super) async fn work(client: &Client, step: &Value, progress: &Progress) -> Result<Value, Error> {
    let until = step["until"].as_u64();
    let seen = Arc::new(Seen {
        numbers: Mutex::default(),
        unexpected: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        until: until.unwrap_or(u64::MAX),
        fail_every: step["fail_every"].as_u64().unwrap_or_default(),
        reached: progress.reached.clone(),
    });
    let mut builder = client.queue(text(step, "queue")).worker();
    if let Some(concurrency) = step["concurrency"].as_u64() {
        builder = builder.concurrency(concurrency.try_into().expect("32 bits"));
    }
    if let Some(lease) = duration(&step["lease"]) {
        builder = builder.lease(lease);
    }
    let errors = Arc::<AtomicU64>::default();
    let told = errors.clone();
    builder = builder.on_error(move |delivery, error| {
        if !is_expected(error) {
            println!("{delivery}: {error}");
            told.fetch_add(1, Ordering::Relaxed);
        }
    });
    let shared = seen.clone();
    let worker = builder.start(move |delivery: Delivery| {
        let seen = shared.clone();
        async move { seen.handle(&delivery) }
    });
    while until != Some(progress.reached.load(Ordering::Relaxed)) && !*progress.stop.borrow() {
        tokio::time::sleep(POLL).await;
    }
    if let Err(error) = worker.stop().await {
        println!("the worker failed: {error}");
        errors.fetch_add(1, Ordering::Relaxed);
    }
    Ok(json!({
        "handled": progress.reached.load(Ordering::Relaxed),
        "unexpected": seen.unexpected.load(Ordering::Relaxed),
        "failed": seen.failed.load(Ordering::Relaxed),
        "errors": errors.load(Ordering::Relaxed),
    }))
}

/// A failure of the handler, or something that came too late.
fn is_expected(error: &WorkerError) -> bool {
    match error {
        WorkerError::Handler(_) => true,
        WorkerError::LeaseLost(why) | WorkerError::NotSettled(why) => {
            matches!(why, Error::NotSettled(NotSettled::LeaseLost | NotSettled::NotFound))
        }
        _ => false,
    }
}

pub(super) async fn consume(client: &Client, step: &Value) -> Result<Value, Error> {
    let queue = client.queue(text(step, "queue"));
    let mut numbers: Vec<u64> = Vec::new();
    while (numbers.len() as u64) < step["count"].as_u64().expect("how many") {
        let options = ConsumeOptions {
            max_messages: 100,
            wait: Duration::from_secs(10),
            lease: None,
        };
        let deliveries = queue.consume(options).await?;
        for delivery in &deliveries {
            numbers.push(answers::text(delivery.payload()).parse().expect("a number"));
            delivery.ack().await?;
        }
    }
    Ok(json!({"numbers": numbers}))
}

pub(super) async fn await_progress(progress: &Progress, step: &Value, timeout: Duration) -> Result<Value, Error> {
    let wanted = step["at_least"].as_u64().expect("how many");
    let end = tokio::time::Instant::now() + timeout;
    loop {
        let reached = progress.reached.load(Ordering::Relaxed);
        if reached >= wanted {
            return Ok(json!({"reached": reached}));
        }
        if tokio::time::Instant::now() > end {
            return Err(Error::Usage(format!("it has come to {reached} of {wanted}")));
        }
        tokio::time::sleep(POLL).await;
    }
}
