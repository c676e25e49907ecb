//! Clients of the cache: they set, read, replace, delete and count through whichever node says that it leads.
//!
//! Nothing here has a time to live: values end by clocks that jump, and nobody could say whether one ended too early.

mod history;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boltq_kv::Entry;
use boltq_kv::command::{Condition, TimeToLive};
use boltq_server::service::KvError;
use tokio::time::sleep;

pub(crate) use self::history::History;
use crate::cluster::Cluster;
use crate::door::{PATIENCE, told};
use crate::ledger::Told;
use crate::node::Node;
use crate::plan::Broken;
use crate::random::Random;
use crate::trace::{Checker, note};

const KEYS: u64 = 3;
const COUNTERS: u64 = 2;

/// One client, until the load ends.
pub(crate) struct CacheClient {
    cluster: Arc<Cluster>,
    random: Random,
    /// The version of each key that it saw last.
    versions: BTreeMap<String, u64>,
}

fn told_by<T>(answer: Option<&Result<T, KvError>>) -> Told {
    match answer {
        None => Told::Unknown,
        Some(Ok(_)) => Told::Done,
        Some(Err(KvError::Service(error))) => told(error),
        Some(Err(_)) => Told::Refused,
    }
}

/// The number that a value is, and its version.
fn number_of(entry: &Entry) -> (u64, u64) {
    let mut number = [0; 8];
    let bytes = entry.value.len().min(8);
    number[..bytes].copy_from_slice(&entry.value[..bytes]);
    (u64::from_le_bytes(number), entry.version)
}

impl CacheClient {
    pub(crate) fn new(cluster: Arc<Cluster>, random: Random) -> Self {
        Self {
            cluster,
            random,
            versions: BTreeMap::new(),
        }
    }

    pub(crate) async fn run(mut self) {
        while self.cluster.loaded.load(Ordering::Relaxed) {
            let pause = self.random.below(3 * self.cluster.plan.pace_ms);
            sleep(Duration::from_millis(pause + 1)).await;
            let Some(node) = self.cluster.leader_or_any(&mut self.random) else {
                continue;
            };
            let key = format!("key{}", self.random.below(KEYS));
            match self.random.below(1_000) {
                0..400 => {
                    if let Some(version) = read(&self.cluster, &node, &key).await {
                        self.versions.insert(key, version);
                    }
                }
                400..600 => self.set(&node, &key, Condition::Any).await,
                600..750 => {
                    let known = self.versions.get(&key).copied();
                    self.set(&node, &key, known.map_or(Condition::Absent, Condition::Version))
                        .await;
                }
                750..820 => delete(&self.cluster, &node, &key).await,
                _ => {
                    let key = format!("number{}", self.random.below(COUNTERS));
                    count(&self.cluster, &node, &key).await;
                }
            }
        }
    }

    async fn set(&mut self, node: &Node, key: &str, condition: Condition) {
        let tag = self.cluster.ledger.tag();
        let replaces = match condition {
            Condition::Version(version) => Some(version),
            _ => None,
        };
        let history = &self.cluster.cache;
        let asked = history.setting(key, tag, replaces);
        let (kv, name) = (node.kv.clone(), key.to_owned());
        let work = async move {
            kv.set(&name, &tag.to_le_bytes(), TimeToLive::Unlimited, condition)
                .await
        };
        let answer = node.ask(PATIENCE, work).await;
        let told = told_by(answer.as_ref());
        let version = answer.and_then(Result::ok);
        note!(
            self.cluster.trace,
            "n{} sets {key} to {tag}, {condition:?}: {told:?}, version {version:?}",
            node.index
        );
        self.cluster.trace.count(match told {
            Told::Done => "values set",
            Told::Refused => "values refused",
            Told::Unknown => "values unknown",
        });
        history.set(asked, tag, told, version.unwrap_or_default());
        if let Some(version) = version {
            self.versions.insert(key.to_owned(), version);
        }
    }
}

/// Reads a key; the version, if there is a value.
async fn read(cluster: &Cluster, node: &Node, key: &str) -> Option<u64> {
    let asked = cluster.cache.asking();
    let entry = get(node, key).await?;
    let found = entry.as_ref().map(number_of);
    note!(cluster.trace, "n{} reads {key}: {found:?}", node.index);
    cluster.trace.count("values read");
    cluster.cache.read(asked, key, found);
    found.map(|(_, version)| version)
}

/// Nothing: there was no answer, or none that says anything.
async fn get(node: &Node, key: &str) -> Option<Option<Entry>> {
    let (kv, name) = (node.kv.clone(), key.to_owned());
    let work = async move { kv.get(&name, |_| std::future::ready(())).await };
    let (entry, ()) = node.ask(PATIENCE, work).await?.ok()?;
    Some(entry)
}

async fn delete(cluster: &Cluster, node: &Node, key: &str) {
    let asked = cluster.cache.deleting(key);
    let (kv, name) = (node.kv.clone(), key.to_owned());
    let answer = node
        .ask(PATIENCE, async move { kv.delete(&name, Condition::Any).await })
        .await;
    let told = told_by(answer.as_ref());
    let was_there = answer.is_some_and(|answer| answer.is_ok_and(|there| there));
    note!(
        cluster.trace,
        "n{} deletes {key}: {told:?}, there {was_there}",
        node.index
    );
    if was_there {
        cluster.trace.count("values deleted");
    }
    cluster.cache.deleted(asked, key, told, was_there);
}

async fn count(cluster: &Cluster, node: &Node, key: &str) {
    let asked = cluster.cache.counting(key);
    let (kv, name) = (node.kv.clone(), key.to_owned());
    let twice = cluster.kit.broken == Broken::CountsTwice;
    let work = async move {
        if twice {
            let _ = kv.increment(&name, 1).await;
        }
        kv.increment(&name, 1).await
    };
    let answer = node.ask(PATIENCE, work).await;
    let told = told_by(answer.as_ref());
    let sum = answer.and_then(Result::ok).map(|(sum, _)| sum);
    note!(cluster.trace, "n{} counts {key}: {told:?}, {sum:?}", node.index);
    if told == Told::Done {
        cluster.trace.count("increments");
    }
    cluster.cache.counted(asked, key, told, sum.unwrap_or_default());
}

/// When nobody changes anything any more: every key has the value that it is to have.
pub(crate) async fn check(cluster: &Cluster, leader: &Node) {
    for key in cluster.cache.keys() {
        read(cluster, leader, &key).await;
    }
    for key in cluster.cache.counters() {
        let Some(entry) = get(leader, &key).await else {
            continue;
        };
        let text = entry.map_or_else(
            || "0".to_owned(),
            |entry| String::from_utf8_lossy(&entry.value).into_owned(),
        );
        match text.parse() {
            Ok(sum) => cluster.cache.check_sum(&key, sum),
            Err(_) => cluster
                .trace
                .violation(Checker::Cache, format!("{key} is no number: {text:?}")),
        }
    }
    cluster.cache.check_replacements();
}
