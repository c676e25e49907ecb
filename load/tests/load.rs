//! Loads on a broker that is made up, and does what a test wants.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use boltq_load::{Answered, Batch, Consumer, Driver, Load, LoadError, Plan, Publisher, Received, Report, Stamp};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Longer than any machine stalls.
const PATIENCE: Duration = Duration::from_secs(60);

/// A queue in memory; settles at once what it is told to.
#[derive(Clone, Default)]
struct Broker(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Batches that are not answered.
    unanswered: usize,
    unanswered_most: usize,
    sent: usize,
    /// Batches that may be answered yet; `None`: all.
    answers: Option<usize>,
    /// Every so many batches one is refused.
    refuse_every: Option<usize>,
    queue: VecDeque<Bytes>,
    settled_news: u64,
    connected: usize,
    fail_consumers: bool,
}

impl Broker {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.changed.notify_waiters();
    }

    async fn until<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(value) = ready(&mut self.state()) {
                return value;
            }
            changed.await;
        }
    }
}

struct Sender {
    broker: Broker,
    batch: Batch,
}

impl Publisher for Sender {
    fn send(&mut self, stamp: Stamp) -> Result<(), LoadError> {
        self.broker.change(|state| {
            state.sent += 1;
            state.unanswered += 1;
            state.unanswered_most = state.unanswered_most.max(state.unanswered);
            let payload = Bytes::copy_from_slice(&stamp.to_bytes());
            state.queue.extend(vec![payload; self.batch.messages]);
        });
        Ok(())
    }

    async fn answered(&mut self) -> Result<Answered, LoadError> {
        let messages = self.batch.messages;
        let answered = self
            .broker
            .until(|state| {
                let left = state.answers.unwrap_or(usize::MAX);
                if state.unanswered == 0 || left == 0 {
                    return None;
                }
                state.answers = state.answers.map(|left| left - 1);
                state.unanswered -= 1;
                let answered = state.sent - state.unanswered;
                let refuse = state.refuse_every.is_some_and(|every| answered.is_multiple_of(every));
                Some(Answered {
                    stored: if refuse { 0 } else { messages as u64 },
                    refused: if refuse {
                        vec!["QUEUE_FULL".to_owned(); messages]
                    } else {
                        Vec::new()
                    },
                })
            })
            .await;
        // A broker gives others a turn.
        tokio::task::yield_now().await;
        Ok(answered)
    }
}

struct Receiver(Broker);

impl Consumer for Receiver {
    type Token = ();

    async fn next(&mut self) -> Result<Received<()>, LoadError> {
        self.0
            .until(|state| {
                if state.fail_consumers {
                    return Some(Err("the broker is gone".into()));
                }
                let payloads: Vec<_> = state.queue.drain(..).collect();
                let settled = std::mem::take(&mut state.settled_news);
                (settled > 0 || !payloads.is_empty()).then(|| {
                    Ok(Received {
                        tokens: vec![(); payloads.len()],
                        payloads,
                        settled,
                        not_settled: Vec::new(),
                    })
                })
            })
            .await
    }

    fn ack(&mut self, tokens: Vec<()>) -> Result<(), LoadError> {
        self.0.change(|state| state.settled_news += tokens.len() as u64);
        Ok(())
    }
}

impl Driver for Broker {
    type Publisher = Sender;
    type Consumer = Receiver;

    async fn publisher(&self, batch: &Batch) -> Result<Sender, LoadError> {
        self.change(|state| state.connected += 1);
        Ok(Sender {
            broker: self.clone(),
            batch: batch.clone(),
        })
    }

    async fn consumer(&self, _: &str, _: u32, _: u32) -> Result<Receiver, LoadError> {
        self.change(|state| state.connected += 1);
        Ok(Receiver(self.clone()))
    }
}

fn plan() -> Plan {
    Plan {
        batch: Batch {
            queue: "q".to_owned(),
            messages: 10,
            payload_bytes: 100,
        },
        publishers: 1,
        consumers: 0,
        outstanding: 4,
        rate: None,
        backlog: None,
        in_flight: 100,
    }
}

/// Reports until one is as wanted.
async fn until(load: &Load, wanted: impl Fn(&Report) -> bool) -> Report {
    timeout(PATIENCE, async {
        loop {
            let report = load.report().unwrap();
            if wanted(&report) {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_closed_loop_keeps_as_much_unanswered_as_it_may() {
    let broker = Broker::default();
    broker.state().answers = Some(100);
    let load = Load::start(&broker, &plan()).await.unwrap();
    let report = until(&load, |report| report.published.messages == 1_000).await;
    assert_eq!(report.published.bytes, 100_000);
    assert!(report.published.latency_us.unwrap().p50 >= 0.0);
    assert_eq!((report.delivered, report.settled, report.failed), (None, None, 0));
    broker.until(|state| (state.sent == 104).then_some(())).await;
    assert_eq!(broker.state().unanswered_most, 4);
}

#[tokio::test]
async fn what_is_consumed_is_acknowledged_and_its_way_is_measured() {
    let broker = Broker::default();
    let plan = Plan {
        consumers: 2,
        publishers: 2,
        backlog: Some(50),
        ..plan()
    };
    let load = Load::start(&broker, &plan).await.unwrap();
    assert_eq!(broker.state().connected, 4);
    let report = until(&load, |report| report.settled > Some(1_000)).await;
    let delivered = report.delivered.unwrap();
    assert!(delivered.messages >= report.settled.unwrap());
    assert!(delivered.latency_us.unwrap().max >= delivered.latency_us.unwrap().p50);
    load.stop().await;
    assert_eq!(broker.state().unanswered, 0);
}

#[tokio::test]
async fn a_publisher_does_not_run_ahead_of_its_consumers() {
    let broker = Broker::default();
    // Consumers exist, and get nothing.
    broker.state().answers = None;
    let plan = Plan {
        consumers: 1,
        backlog: Some(30),
        ..plan()
    };
    struct Deaf(Broker);
    struct Nothing;
    impl Consumer for Nothing {
        type Token = ();
        async fn next(&mut self) -> Result<Received<()>, LoadError> {
            std::future::pending().await
        }
        fn ack(&mut self, _: Vec<()>) -> Result<(), LoadError> {
            Ok(())
        }
    }
    impl Driver for Deaf {
        type Publisher = Sender;
        type Consumer = Nothing;
        async fn publisher(&self, batch: &Batch) -> Result<Sender, LoadError> {
            self.0.publisher(batch).await
        }
        async fn consumer(&self, _: &str, _: u32, _: u32) -> Result<Nothing, LoadError> {
            Ok(Nothing)
        }
    }
    let load = Load::start(&Deaf(broker.clone()), &plan).await.unwrap();
    until(&load, |report| report.published.messages == 30).await;
    // All that was sent is answered, so nothing but the backlog holds it back.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(broker.state().sent, 3);
}

#[tokio::test]
async fn in_an_open_loop_a_pause_shows_in_everything_that_was_due_in_it() {
    let broker = Broker::default();
    broker.state().answers = Some(1);
    let plan = Plan {
        rate: Some(1_000.0),
        outstanding: 2,
        ..plan()
    };
    // 100 batches a second. The broker answers one, and then nothing until 50 more are due.
    let load = Load::start(&broker, &plan).await.unwrap();
    until(&load, |report| report.published.messages == 10 && report.seconds > 0.5).await;
    assert!(broker.state().sent <= 3, "{}", broker.state().sent);
    broker.change(|state| state.answers = None);
    let report = until(&load, |report| report.published.messages >= 500).await;
    let latency = report.published.latency_us.unwrap();
    // Half of those that were due in the pause waited for more than half of it. Counted from when they were sent, nearly all
    // would have waited for nothing.
    assert!(latency.p50 > 100_000.0, "{latency:?}");
    assert!(latency.max >= 400_000.0, "{latency:?}");
}

#[tokio::test]
async fn an_open_loop_sends_no_more_than_is_due() {
    let broker = Broker::default();
    let plan = Plan {
        rate: Some(2_000.0),
        publishers: 2,
        ..plan()
    };
    let started = Instant::now();
    let load = Load::start(&broker, &plan).await.unwrap();
    until(&load, |report| report.published.messages >= 200).await;
    let sent = broker.state().sent;
    // The first batch of each is due at once.
    let due = 2.0 + started.elapsed().as_secs_f64() * 200.0;
    assert!(sent as f64 <= due, "{sent} of {due}");
}

#[tokio::test]
async fn the_warm_up_does_not_count() {
    let broker = Broker::default();
    broker.state().answers = Some(7);
    let mut load = Load::start(&broker, &plan()).await.unwrap();
    until(&load, |report| report.published.messages == 70).await;
    load.measure();
    let report = load.report().unwrap();
    assert_eq!((report.published.messages, report.published.latency_us), (0, None));
    assert_eq!(load.counts().published, 70);
}

#[tokio::test]
async fn what_was_refused_is_counted_by_its_reason() {
    let broker = Broker::default();
    broker.change(|state| {
        state.answers = Some(20);
        state.refuse_every = Some(4);
    });
    let load = Load::start(&broker, &plan()).await.unwrap();
    let report = until(&load, |report| report.published.messages + report.failed == 200).await;
    assert_eq!(report.failed, report.reasons["QUEUE_FULL"]);
    assert!(report.failed >= 10 && report.published.messages >= 10, "{report:?}");
}

#[tokio::test]
async fn a_worker_that_fails_is_told() {
    let broker = Broker::default();
    let plan = Plan { consumers: 1, ..plan() };
    let mut load = Load::start(&broker, &plan).await.unwrap();
    broker.change(|state| state.fail_consumers = true);
    let error = timeout(PATIENCE, load.failed()).await.unwrap();
    assert_eq!(error.to_string(), "the broker is gone");
    load.stop().await;
}
