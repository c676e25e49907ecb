//! Workers of the Rust client: what the scenarios cannot ask for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boltq::{Client, ConsumeOptions, Delivery, Failed, Message, PublisherOptions, Queue, WorkerError};
use boltq_tests::harness::{Server, ServerOptions, eventually_async, within};

const WITHIN: Duration = Duration::from_secs(60);

fn queue() -> (Server, Queue) {
    let server = Server::start(&ServerOptions::memory().set("queue.retry_backoff", "1ms"));
    let client = Client::builder()
        .address(server.messaging().to_string())
        .build()
        .expect("a client");
    (server, client.queue("jobs"))
}

/// What a worker told: the payload of the message, and what it was.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(String, String)>>>);

impl Told {
    fn note(&self, delivery: &Delivery, error: &WorkerError) {
        let what = match error {
            WorkerError::Handler(failed) => failed.why().to_owned(),
            other => format!("{other:?}"),
        };
        self.0.lock().unwrap().push((text(delivery), what));
    }

    /// Sorted.
    fn all(&self) -> Vec<(String, String)> {
        let mut all = self.0.lock().unwrap().clone();
        all.sort();
        all
    }
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload().to_vec()).expect("text")
}

async fn is_empty(queue: &Queue) {
    let empty = || async {
        let now = queue.get().await.expect("the queue");
        (now.ready + now.leased + now.delayed == 0).then_some(())
    };
    eventually_async(WITHIN, "the queue is empty", empty).await;
}

#[tokio::test]
async fn handlers_that_fail_and_panic_are_told_and_their_messages_come_again_or_become_dead_letters() {
    let (_server, queue) = queue();
    for what in ["fails", "never", "panics"] {
        queue.publish(what).await.expect("published");
    }
    let (told, tries) = (Told::default(), Arc::<AtomicUsize>::default());
    let (note, counted) = (told.clone(), tries.clone());
    let worker = queue
        .worker()
        .on_error(move |delivery, error| note.note(delivery, error))
        .start(move |delivery: Delivery| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                match (text(&delivery).as_str(), delivery.attempts()) {
                    ("never", _) => Err(Failed::dead_letter("no use")),
                    ("fails", 0) => Err(Failed::retry_after(Duration::from_millis(1), "not now")),
                    ("panics", 0) => panic!("not yet"),
                    _ => Ok(()),
                }
            }
        });
    eventually_async(WITHIN, "all are handled", || async {
        (worker.stats().succeeded == 2).then_some(())
    })
    .await;
    is_empty(&queue).await;
    let stats = worker.stats();
    let stopped = within(WITHIN, "the worker stops", worker.stop())
        .await
        .expect("stopped");
    assert_eq!((stats.failed, stats.not_settled, stopped.not_settled.len()), (3, 0, 0));
    assert_eq!(tries.load(Ordering::Relaxed), 5);
    let wanted = [
        ("fails", "not now"),
        ("never", "no use"),
        ("panics", "the handler panicked: not yet"),
    ];
    assert_eq!(told.all(), wanted.map(|(one, why)| (one.to_owned(), why.to_owned())));
    assert_eq!(queue.get().await.expect("the queue").dead_letters, 1);
}

#[tokio::test]
async fn a_handler_that_runs_for_too_long_is_dropped_and_told_and_its_message_comes_again() {
    let (_server, queue) = queue();
    queue.publish("long").await.expect("published");
    let told = Told::default();
    let note = told.clone();
    let worker = queue
        .worker()
        .lease(Duration::from_secs(20))
        .max_lease(Duration::ZERO)
        .concurrency(1)
        .on_error(move |delivery, error| note.note(delivery, error))
        .start(|delivery: Delivery| async move {
            if delivery.attempts() == 0 {
                std::future::pending::<()>().await;
            }
            Ok::<(), Failed>(())
        });
    is_empty(&queue).await;
    let stats = worker.stats();
    let stopped = within(WITHIN, "the worker stops", worker.stop())
        .await
        .expect("stopped");
    assert_eq!((stats.succeeded, stats.failed, stopped.not_settled.len()), (1, 1, 0));
    assert_eq!(told.all(), [("long".to_owned(), "LeaseCeiling".to_owned())]);
}

#[tokio::test]
async fn a_worker_that_may_hold_the_bytes_of_one_message_handles_all() {
    const MESSAGES: usize = 64;
    const BYTES: usize = 64 << 10;
    let (_server, queue) = queue();
    let publisher = queue.publisher(PublisherOptions::default());
    for _ in 0..MESSAGES {
        _ = publisher.publish(Message::new(vec![0; BYTES])).await.expect("room");
    }
    publisher.close().await;
    let worker = queue
        .worker()
        .prefetch(1_000)
        .max_buffered_bytes(BYTES)
        .start(|_: Delivery| async { Ok::<(), Failed>(()) });
    is_empty(&queue).await;
    assert_eq!(worker.stats().succeeded, MESSAGES as u64);
    within(WITHIN, "the worker stops", worker.stop())
        .await
        .expect("stopped");
}

#[tokio::test]
async fn a_worker_that_is_dropped_gives_back_at_once_what_it_holds() {
    let (_server, queue) = queue();
    for number in 0..4 {
        queue.publish(number.to_string()).await.expect("published");
    }
    let running = Arc::<AtomicUsize>::default();
    let counted = running.clone();
    let worker = queue
        .worker()
        .concurrency(2)
        .lease(Duration::from_secs(3_600))
        .start(move |_: Delivery| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<(), Failed>>()
        });
    eventually_async(WITHIN, "it holds all", || async {
        let leased = queue.get().await.expect("the queue").leased;
        (leased == 4 && running.load(Ordering::Relaxed) == 2).then_some(())
    })
    .await;
    drop(worker);
    let mut left = Vec::new();
    while left.len() < 4 {
        let options = ConsumeOptions {
            max_messages: 4,
            wait: Duration::from_secs(20),
            lease: Some(Duration::from_secs(3_600)),
        };
        let taken = queue.consume(options).await.expect("consumed");
        assert!(!taken.is_empty(), "{} of 4 were given back", left.len());
        left.extend(taken.iter().map(Delivery::attempts));
    }
    assert_eq!(left, [0; 4]);
}
