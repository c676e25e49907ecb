//! What a scenario has while it runs: variables, streams, steps in the background.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use boltq::{Client, Error, Subscription, TopicSubscription, Watch};
use boltq_tests::testbed::BedThread;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::steps;
use super::workers::ToldWorker;

/// A stream that a step has opened.
pub(super) enum Open {
    Queue(Subscription),
    Topic(TopicSubscription),
    Cache(Box<Watch>),
}

/// How far a step in the background is, and whether it is to end.
#[derive(Clone)]
pub(super) struct Progress {
    pub(super) reached: Arc<AtomicU64>,
    pub(super) stop: Arc<watch::Sender<bool>>,
}

struct Background {
    progress: Progress,
    task: Option<JoinHandle<Result<Value, Error>>>,
}

/// See the module.
pub(super) struct Context {
    client: Client,
    bed: Arc<BedThread>,
    run: String,
    variables: Mutex<HashMap<String, Value>>,
    pub(super) streams: tokio::sync::Mutex<HashMap<String, Open>>,
    pub(super) workers: tokio::sync::Mutex<HashMap<String, Arc<ToldWorker>>>,
    background: Mutex<HashMap<String, Background>>,
}

impl Context {
    pub(super) fn new(bed: Arc<BedThread>) -> Arc<Self> {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let client = Client::builder().addresses(bed.addresses()).build().expect("a client");
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            client,
            bed,
            run: format!("{:08x}{number:08x}", std::process::id()),
            variables: Mutex::default(),
            streams: tokio::sync::Mutex::default(),
            workers: tokio::sync::Mutex::default(),
            background: Mutex::default(),
        })
    }

    /// The client with the deadline of a step.
    pub(super) fn client(&self, timeout: Duration) -> Client {
        self.client.with_timeout(timeout)
    }

    /// Tells the test bed.
    pub(super) async fn command(&self, command: &str) -> Value {
        self.bed.command(command).await
    }

    pub(super) fn save(&self, variable: &str, value: Value) {
        lock(&self.variables).insert(variable.to_owned(), value);
    }

    /// Starts a step and does not wait for it.
    pub(super) fn start(self: &Arc<Self>, name: &str, step: Value, timeout: Duration) {
        let progress = Progress {
            reached: Arc::default(),
            stop: Arc::new(watch::channel(false).0),
        };
        let (context, with) = (self.clone(), progress.clone());
        let task = tokio::spawn(async move { steps::perform_with(&context, &step, timeout, &with).await });
        let background = Background {
            progress,
            task: Some(task),
        };
        lock(&self.background).insert(name.to_owned(), background);
    }

    pub(super) fn progress(&self, name: &str) -> Progress {
        let background = lock(&self.background);
        background
            .get(name)
            .unwrap_or_else(|| panic!("nothing runs as {name}"))
            .progress
            .clone()
    }

    pub(super) async fn join(&self, name: &str) -> Result<Value, Error> {
        let task = lock(&self.background)
            .get_mut(name)
            .and_then(|background| background.task.take());
        task.unwrap_or_else(|| panic!("nothing runs as {name}"))
            .await
            .expect("a step that does not panic")
    }

    /// A step with its variables and names in it.
    pub(super) fn interpolate(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(elements) => elements.iter().map(|element| self.interpolate(element)).collect(),
            // Names of variables to save are no values.
            Value::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|(key, value)| match key.as_str() {
                        "save" => (key.clone(), value.clone()),
                        _ => (key.clone(), self.interpolate(value)),
                    })
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    fn text(&self, text: &str) -> Value {
        if text == "$any" {
            return text.into();
        }
        let variables = lock(&self.variables);
        if let Some(name) = text.strip_prefix('$')
            && !name.starts_with('{')
            && !name.starts_with("unique(")
        {
            return variables
                .get(name)
                .unwrap_or_else(|| panic!("no variable {name}"))
                .clone();
        }
        let mut replaced = text.to_owned();
        while let Some((before, rest)) = replaced.split_once("$unique(") {
            let (prefix, after) = rest.split_once(')').expect("a closing parenthesis");
            replaced = format!("{before}{prefix}-{}{after}", self.run);
        }
        while let Some((before, rest)) = replaced.split_once("${") {
            let (name, after) = rest.split_once('}').expect("a closing brace");
            let value = variables.get(name).unwrap_or_else(|| panic!("no variable {name}"));
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            replaced = format!("{before}{value}{after}");
        }
        replaced.into()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
