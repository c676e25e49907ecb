//! Servers are killed and restarted while a publisher and a worker are busy.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boltq::{Client, Delivery, Failed, PublisherOptions, QueueSettings, SubscribeOptions};
use boltq_tests::harness::{eventually_async, within};
use boltq_tests::testbed::{BedThread, TestBedOptions};
use clap::Parser;

const WITHIN: Duration = Duration::from_secs(120);

/// A publisher and a worker, and what they saw.
struct Load {
    confirmed: Arc<AtomicU64>,
    seen: Arc<Mutex<HashSet<u64>>>,
    stop: Arc<AtomicBool>,
    publishing: tokio::task::JoinHandle<Result<u64, boltq::Error>>,
    worker: boltq::Worker,
    client: Client,
}

const QUEUE: &str = "load";

impl Load {
    async fn start(client: Client) -> Self {
        let settings = QueueSettings {
            max_retry: Some(1_000),
            ..QueueSettings::default()
        };
        client.queue(QUEUE).create(settings).await.expect("a queue");
        let (confirmed, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let publishing = tokio::spawn(publish(client.clone(), confirmed.clone(), stop.clone()));
        let seen = Arc::<Mutex<HashSet<u64>>>::default();
        let shared = seen.clone();
        let worker = client
            .queue(QUEUE)
            .worker()
            .concurrency(32)
            .start(move |delivery: Delivery| {
                let seen = shared.clone();
                async move {
                    let number = std::str::from_utf8(delivery.payload())?.parse()?;
                    seen.lock().unwrap().insert(number);
                    Ok::<(), Failed>(())
                }
            });
        Self {
            confirmed,
            seen,
            stop,
            publishing,
            worker,
            client,
        }
    }

    /// Waits until so many more are confirmed.
    async fn go_on(&self, more: u64) {
        let target = self.confirmed.load(Ordering::Relaxed) + more;
        let what = format!("{target} publishes are confirmed");
        eventually_async(WITHIN, &what, || async {
            (self.confirmed.load(Ordering::Relaxed) >= target).then_some(())
        })
        .await;
    }

    /// All that was confirmed is worked on, nothing was reported to the application, nothing is left.
    async fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        let published = within(WITHIN, "the publisher ends", self.publishing)
            .await
            .expect("no panic")
            .expect("no failure");
        let all = || async {
            assert!(!self.worker.has_ended(), "the worker goes on");
            (self.seen.lock().unwrap().len() as u64 >= published).then_some(())
        };
        eventually_async(WITHIN, "all that was confirmed is worked on", all).await;
        within(WITHIN, "the worker stops", self.worker.stop())
            .await
            .expect("no failure");
        assert_eq!(
            self.seen.lock().unwrap().len() as u64,
            published,
            "nothing else was there"
        );
        let empty = || async {
            let queue = self.client.queue(QUEUE).get().await.expect("the queue");
            assert_eq!(queue.dead_letters, 0);
            (queue.ready + queue.leased + queue.delayed == 0).then_some(())
        };
        eventually_async(WITHIN, "the queue is empty", empty).await;
        let stats = self.client.stats().await.expect("statistics");
        assert!(stats.published >= published, "{stats:?}");
    }
}

/// Numbers from 0 on until it is stopped; how many those were. Each has to be confirmed.
async fn publish(client: Client, confirmed: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> Result<u64, boltq::Error> {
    let publisher = client.queue(QUEUE).publisher(PublisherOptions {
        max_messages: 64,
        ..PublisherOptions::default()
    });
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut batch = Vec::new();
        for _ in 0..32 {
            batch.push(publisher.publish(number.to_string()).await?);
            number += 1;
        }
        for confirmation in batch {
            confirmation.await?;
            confirmed.fetch_add(1, Ordering::Relaxed);
        }
    }
    publisher.close().await;
    Ok(number)
}

/// Servers, and a client that knows all of them.
async fn start(nodes: &str) -> (BedThread, Client) {
    let bed = BedThread::start(TestBedOptions::parse_from(["boltq-testbed", "--nodes", nodes])).await;
    let client = Client::builder()
        .addresses(bed.addresses())
        .timeout(Duration::from_secs(60))
        .connect();
    let client = client.await.expect("a client");
    (bed, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_and_restart_of_a_node_that_is_alone_lose_nothing_and_fail_nothing() {
    let (bed, client) = start("1").await;
    let load = Load::start(client).await;
    for _ in 0..3 {
        load.go_on(500).await;
        bed.command("restart 0").await;
    }
    load.go_on(500).await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_that_are_killed_are_not_seen_by_the_application() {
    let (bed, client) = start("3").await;
    let load = Load::start(client).await;
    for _ in 0..2 {
        load.go_on(500).await;
        bed.command("kill-leader").await;
        load.go_on(500).await;
        bed.command("restart-killed").await;
    }
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_three_nodes_is_not_seen_by_the_application() {
    let (bed, client) = start("3").await;
    // Unary calls beside the streams: each of them has to succeed.
    let (caller, stop) = (client.clone(), Arc::<AtomicBool>::default());
    let stopped = stop.clone();
    let calling = tokio::spawn(async move {
        let mut calls = 0_u64;
        while !stopped.load(Ordering::Relaxed) {
            caller.queue("single").publish(calls.to_string()).await?;
            caller.kv().set("key", calls.to_string()).await?;
            let entry = caller.kv().get("key").await?.expect("a value");
            assert_eq!(entry.value, calls.to_string());
            calls += 1;
        }
        Ok::<u64, boltq::Error>(calls)
    });
    let load = Load::start(client.clone()).await;
    load.go_on(300).await;
    bed.command("rolling-restart").await;
    load.go_on(300).await;
    load.finish().await;
    stop.store(true, Ordering::Relaxed);
    let calls = within(WITHIN, "the calls end", calling)
        .await
        .expect("no panic")
        .expect("no failure");
    let queue = client.queue("single").get().await.expect("the queue");
    assert_eq!(queue.ready, calls, "each publish made one message");
}

/// A server that loses the lead has to end the subscriptions that are full too: nobody settles at it any more what they hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_is_full_goes_on_when_its_node_hands_over_the_lead() {
    let (bed, client) = start("3").await;
    let leader = bed.command("leader").await["node"].as_u64().expect("a node");
    let address = bed.addresses().remove(usize::try_from(leader).expect("a small number"));
    let queue = client.queue("full");
    for payload in ["1", "2"] {
        queue.publish(payload).await.expect("published");
    }
    // Of the leader alone, so that no other node stands between and ends the stream.
    let at_leader = Client::builder().address(address).build().expect("a client");
    let mut subscription = at_leader.queue("full").subscribe(SubscribeOptions {
        max_in_flight: 1,
        ..SubscribeOptions::default()
    });
    let first = subscription.next().await.expect("a message").expect("no failure");
    assert_eq!(first.payload(), "1");
    client
        .cluster()
        .transfer_leadership("queue", "")
        .await
        .expect("another leader");
    let again = within(WITHIN, "a message from the new leader", subscription.next()).await;
    let again = again.expect("a message").expect("no failure");
    assert_eq!(
        (again.payload(), again.attempts()),
        (first.payload(), 0),
        "what was held is ready again"
    );
}
