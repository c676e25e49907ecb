//! Workers whose handlers end when the scenario says so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boltq::{Client, Delivery, Error, Failed, Worker, WorkerError};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::context::Context;
use super::steps::text;
use super::{answers, duration};

/// A worker of a scenario.
pub(super) struct ToldWorker {
    worker: Mutex<Option<Worker>>,
    finish: watch::Sender<bool>,
    seen: Arc<Mutex<Seen>>,
}

/// What its handlers have seen, and what it told.
#[derive(Default)]
struct Seen {
    begun: Vec<Delivery>,
    running: Vec<Delivery>,
    errors: Vec<Value>,
}

/// A handler that runs: until it ends or is dropped.
struct Handling {
    seen: Arc<Mutex<Seen>>,
    delivery: Delivery,
}

impl Drop for Handling {
    fn drop(&mut self) {
        let mut seen = lock(&self.seen);
        seen.running.retain(|other| other.token() != self.delivery.token());
    }
}

pub(super) async fn perform(context: &Context, client: &Client, call: &str, step: &Value) -> Result<Value, Error> {
    if call == "start" {
        let worker = Arc::new(start(client, step));
        context.workers.lock().await.insert(text(step, "as").to_owned(), worker);
        return Ok(json!({}));
    }
    let found = context.workers.lock().await.get(text(step, "of")).cloned();
    let told = found.expect("a worker of this name");
    match call {
        "look" => {
            let seen = lock(&told.seen);
            let shown = |all: &[Delivery]| all.iter().map(answers::delivery).collect::<Vec<_>>();
            Ok(json!({"running": shown(&seen.running), "begun": shown(&seen.begun), "errors": seen.errors}))
        }
        "finish" => {
            told.finish.send_replace(true);
            Ok(json!({}))
        }
        "stop" => {
            let worker = lock(&told.worker).take().expect("one that was not stopped");
            let stopped = worker.stop().await?;
            let left: Vec<String> = stopped.not_settled.iter().map(ToString::to_string).collect();
            Ok(json!({"not_settled": left}))
        }
        _ => panic!("worker.{call} is no step"),
    }
}

fn start(client: &Client, step: &Value) -> ToldWorker {
    let mut builder = client.queue(text(step, "queue")).worker();
    let number = |name: &str| Some(u32::try_from(step[name].as_u64()?).expect("32 bits"));
    if let Some(handlers) = number("concurrency") {
        builder = builder.concurrency(handlers);
    }
    if let Some(messages) = number("prefetch") {
        builder = builder.prefetch(messages);
    }
    if let Some(lease) = duration(&step["lease"]) {
        builder = builder.lease(lease);
    }
    if let Some(timeout) = duration(&step["stop_timeout"]) {
        builder = builder.stop_timeout(timeout);
    }
    let seen = Arc::<Mutex<Seen>>::default();
    let told = seen.clone();
    builder = builder.on_error(move |delivery, error| {
        let (what, reason) = match error {
            WorkerError::Handler(_) => ("HANDLER_FAILED", None),
            WorkerError::LeaseCeiling => ("LEASE_CEILING", None),
            WorkerError::LeaseLost(why) => ("LEASE_LOST", why.reason()),
            WorkerError::NotSettled(why) => ("NOT_SETTLED", why.reason()),
            other => panic!("{other} is new"),
        };
        let id = delivery.id().to_string();
        lock(&told)
            .errors
            .push(json!({"message_id": id, "what": what, "reason": reason.unwrap_or_default()}));
    });
    let (finish, finished) = watch::channel(false);
    let shared = seen.clone();
    let worker = builder.start(move |delivery: Delivery| {
        let (seen, mut finished) = (shared.clone(), finished.clone());
        async move {
            lock(&seen).begun.push(delivery.clone());
            lock(&seen).running.push(delivery.clone());
            let _handling = Handling { seen, delivery };
            // Its sender is gone when the scenario has ended.
            let _ = finished.wait_for(|finished| *finished).await;
            Ok::<(), Failed>(())
        }
    });
    ToldWorker {
        worker: Mutex::new(Some(worker)),
        finish,
        seen,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
