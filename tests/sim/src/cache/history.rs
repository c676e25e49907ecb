//! What clients did to the cache and were told, and what of it can never be otherwise.
//!
//! The cache gives each change a version, higher than all before. So versions say in which order changes took effect, and
//! events, as in the ledger, what was over before something else began.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::ledger::Told;
use crate::trace::{Checker, Trace};

/// A value that somebody set, or tried to.
#[derive(Debug, Clone)]
struct Write {
    key: String,
    begun: u64,
    /// None: it is not known whether it is done, so it may come to be done at any time.
    answered: Option<u64>,
    refused: bool,
    /// Once it is known.
    version: Option<u64>,
    /// The version that it was to replace, and nothing else.
    replaces: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Delete {
    begun: u64,
    /// None: as for a [`Write`].
    answered: Option<u64>,
}

/// A key with a number.
#[derive(Debug, Default)]
struct Counter {
    /// Increments that were begun and not refused.
    begun: u64,
    done: u64,
    /// With the event of their answers.
    sums: BTreeMap<i64, u64>,
}

#[derive(Debug, Default)]
struct Inner {
    event: u64,
    /// By the number that is the value.
    writes: BTreeMap<u64, Write>,
    deletes: BTreeMap<String, Vec<Delete>>,
    /// Of each key the events at which a version was answered that is higher than all before.
    seen: BTreeMap<String, Vec<(u64, u64)>>,
    counters: BTreeMap<String, Counter>,
}

/// See the module.
pub(crate) struct History {
    inner: Mutex<Inner>,
    trace: Trace,
}

/// A request that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked(u64);

impl Inner {
    fn next_event(&mut self) -> u64 {
        self.event += 1;
        self.event
    }

    /// The highest version of a key that was answered before a request began.
    fn floor(&self, key: &str, asked: Asked) -> Option<u64> {
        let seen = self.seen.get(key)?;
        let before = seen.iter().rev().find(|(event, _)| *event < asked.0);
        before.map(|(_, version)| *version)
    }

    fn see(&mut self, key: &str, version: u64) {
        let event = self.next_event();
        let seen = self.seen.entry(key.to_owned()).or_default();
        if seen.last().is_none_or(|(_, highest)| *highest < version) {
            seen.push((event, version));
        }
    }

    fn with_version(&self, version: u64) -> Option<(u64, &Write)> {
        let mut writes = self.writes.iter();
        let found = writes.find(|(_, write)| write.version == Some(version));
        found.map(|(tag, write)| (*tag, write))
    }

    /// The version of a write is known now.
    fn name(&mut self, tag: u64, version: u64) -> Result<(), String> {
        if let Some((other, _)) = self.with_version(version).filter(|(other, _)| *other != tag) {
            return Err(format!("the values {other} and {tag} both have the version {version}"));
        }
        let Some(write) = self.writes.get_mut(&tag) else {
            return Ok(());
        };
        match write.version.replace(version) {
            Some(known) if known != version => Err(format!("value {tag} has the versions {known} and {version}")),
            _ => Ok(()),
        }
    }

    fn read(&mut self, asked: Asked, key: &str, found: Option<(u64, u64)>) -> Result<(), String> {
        match found {
            None => self.read_nothing(asked, key),
            Some((tag, version)) => self.read_value(asked, key, tag, version),
        }
    }

    /// A deletion is the one thing that takes values away here.
    fn read_nothing(&self, asked: Asked, key: &str) -> Result<(), String> {
        let Some(floor) = self.floor(key, asked) else {
            return Ok(());
        };
        let begun = self.with_version(floor).map_or(0, |(_, write)| write.begun);
        let deletes = self.deletes.get(key).map(Vec::as_slice).unwrap_or_default();
        let may_be_gone = |delete: &Delete| delete.answered.is_none_or(|answered| answered > begun);
        match deletes.iter().any(may_be_gone) {
            true => Ok(()),
            false => Err(format!("{key} has no value, and version {floor} was answered before")),
        }
    }

    fn read_value(&mut self, asked: Asked, key: &str, tag: u64, version: u64) -> Result<(), String> {
        let floor = self.floor(key, asked);
        let Some(write) = self.writes.get(&tag).filter(|write| write.key == key) else {
            return Err(format!("{key} has the value {tag}, which nobody set"));
        };
        if write.refused {
            return Err(format!("{key} has the value {tag}, which was refused"));
        }
        if floor.is_some_and(|floor| version < floor) {
            return Err(format!(
                "{key} is read at version {version}, and {floor:?} was answered before"
            ));
        }
        let deletes = self.deletes.get(key).map(Vec::as_slice).unwrap_or_default();
        let between = |delete: &Delete| {
            let after = write.answered.is_some_and(|answered| answered < delete.begun);
            after && delete.answered.is_some_and(|answered| answered < asked.0)
        };
        if deletes.iter().any(between) {
            return Err(format!("{key} has the value {tag}, which was deleted before"));
        }
        self.name(tag, version)?;
        self.see(key, version);
        Ok(())
    }
}

impl History {
    pub(crate) fn new(trace: Trace) -> Self {
        Self {
            inner: Mutex::default(),
            trace,
        }
    }

    fn judge(&self, judged: Result<(), String>) {
        if let Err(what) = judged {
            self.trace.violation(Checker::Cache, what);
        }
    }

    pub(crate) fn asking(&self) -> Asked {
        Asked(self.inner.lock().next_event())
    }

    /// Somebody sets a key to a number that is no other value.
    pub(crate) fn setting(&self, key: &str, tag: u64, replaces: Option<u64>) -> Asked {
        let mut inner = self.inner.lock();
        let begun = inner.next_event();
        let write = Write {
            key: key.to_owned(),
            begun,
            answered: None,
            refused: false,
            version: None,
            replaces,
        };
        inner.writes.insert(tag, write);
        Asked(begun)
    }

    /// What came of it; with the version, if it is done.
    pub(crate) fn set(&self, asked: Asked, tag: u64, told: Told, version: u64) {
        let mut inner = self.inner.lock();
        let event = inner.next_event();
        let Some(write) = inner.writes.get_mut(&tag) else {
            return;
        };
        write.answered = (told == Told::Done).then_some(event);
        write.refused = told == Told::Refused;
        let (key, read) = (write.key.clone(), write.version);
        let judged = match told {
            Told::Unknown => Ok(()),
            Told::Refused if read.is_some() => Err(format!("value {tag} was read, and is refused")),
            Told::Refused => Ok(()),
            Told::Done => match inner.floor(&key, asked) {
                Some(floor) if floor >= version => Err(format!(
                    "value {tag} has version {version}, and {floor} was answered before"
                )),
                _ => inner.name(tag, version),
            },
        };
        if told == Told::Done {
            inner.see(&key, version);
        }
        drop(inner);
        self.judge(judged);
    }

    /// Somebody got the value and the version of a key, or that there is none.
    pub(crate) fn read(&self, asked: Asked, key: &str, found: Option<(u64, u64)>) {
        let judged = self.inner.lock().read(asked, key, found);
        self.judge(judged);
    }

    pub(crate) fn deleting(&self, key: &str) -> Asked {
        let mut inner = self.inner.lock();
        let begun = inner.next_event();
        let deletes = inner.deletes.entry(key.to_owned()).or_default();
        deletes.push(Delete { begun, answered: None });
        Asked(begun)
    }

    /// What came of it, and whether there was a value.
    pub(crate) fn deleted(&self, asked: Asked, key: &str, told: Told, was_there: bool) {
        let mut inner = self.inner.lock();
        let event = inner.next_event();
        let deletes = inner.deletes.entry(key.to_owned()).or_default();
        let judged = match told {
            Told::Unknown => Ok(()),
            Told::Done if was_there => {
                if let Some(delete) = deletes.iter_mut().find(|delete| delete.begun == asked.0) {
                    delete.answered = Some(event);
                }
                Ok(())
            }
            Told::Done | Told::Refused => {
                deletes.retain(|delete| delete.begun != asked.0);
                match told {
                    Told::Done => inner.read_nothing(asked, key),
                    _ => Ok(()),
                }
            }
        };
        drop(inner);
        self.judge(judged);
    }

    pub(crate) fn counting(&self, key: &str) -> Asked {
        let mut inner = self.inner.lock();
        inner.counters.entry(key.to_owned()).or_default().begun += 1;
        Asked(inner.next_event())
    }

    /// What came of an increment; with the sum, if it is done.
    pub(crate) fn counted(&self, asked: Asked, key: &str, told: Told, sum: i64) {
        let mut inner = self.inner.lock();
        let event = inner.next_event();
        let counter = inner.counters.entry(key.to_owned()).or_default();
        let judged = match told {
            Told::Unknown => Ok(()),
            Told::Refused => {
                counter.begun -= 1;
                Ok(())
            }
            Told::Done => {
                counter.done += 1;
                counter.add(asked, sum, event)
            }
        };
        drop(inner);
        self.judge(judged.map_err(|why| format!("{key}: {why}")));
    }

    pub(crate) fn counters(&self) -> Vec<String> {
        self.inner.lock().counters.keys().cloned().collect()
    }

    pub(crate) fn keys(&self) -> BTreeSet<String> {
        let inner = self.inner.lock();
        inner.writes.values().map(|write| write.key.clone()).collect()
    }

    /// The number that a key has when nobody counts any more.
    pub(crate) fn check_sum(&self, key: &str, sum: i64) {
        let inner = self.inner.lock();
        let (done, begun) = inner
            .counters
            .get(key)
            .map_or((0, 0), |counter| (counter.done, counter.begun));
        drop(inner);
        let is_right = u64::try_from(sum).is_ok_and(|sum| (done..=begun).contains(&sum));
        if !is_right {
            self.judge(Err(format!("{key} is {sum}, and was counted {done} to {begun} times")));
        }
    }

    /// What was set in place of one version came right behind it.
    pub(crate) fn check_replacements(&self) {
        let inner = self.inner.lock();
        let mut judged = Ok(());
        for write in inner.writes.values() {
            let (Some(version), Some(replaces), Some(_)) = (write.version, write.replaces, write.answered) else {
                continue;
            };
            let between = |other: &&Write| {
                other.key == write.key && other.version.is_some_and(|other| replaces < other && other < version)
            };
            if let Some(other) = inner.writes.values().find(between) {
                judged = Err(format!(
                    "{} has version {version} in place of {replaces}, and {:?} was between them",
                    write.key, other.version
                ));
            }
        }
        drop(inner);
        self.judge(judged);
    }
}

impl Counter {
    fn add(&mut self, asked: Asked, sum: i64, event: u64) -> Result<(), String> {
        if self.sums.insert(sum, event).is_some() {
            return Err(format!("two increments have the sum {sum}"));
        }
        if u64::try_from(sum).is_ok_and(|sum| sum > self.begun) || sum < 1 {
            return Err(format!("it is {sum}, and was counted {} times", self.begun));
        }
        let before = self.sums.range(sum + 1..).find(|(_, answered)| **answered < asked.0);
        match before {
            Some((higher, _)) => Err(format!("it is {sum}, and was {higher} before")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks;

    fn begin() -> (History, Trace) {
        clocks::begin(0);
        let trace = Trace::default();
        (History::new(trace.clone()), trace)
    }

    /// What is found in a history; `k` has the value 1 in version 5.
    fn found(live: impl FnOnce(&History)) -> Option<Checker> {
        let (history, trace) = begin();
        let asked = history.setting("k", 1, None);
        history.set(asked, 1, Told::Done, 5);
        live(&history);
        history.check_replacements();
        trace.found().map(|found| found.checker)
    }

    fn set(history: &History, tag: u64, version: u64) {
        let asked = history.setting("k", tag, None);
        history.set(asked, tag, Told::Done, version);
    }

    #[test]
    fn what_was_set_is_read_until_it_is_replaced_or_deleted() {
        let found = found(|history| {
            history.read(history.asking(), "k", Some((1, 5)));
            // Nobody knows of this one, until it is read.
            let asked = history.setting("k", 2, None);
            history.set(asked, 2, Told::Unknown, 0);
            history.read(history.asking(), "k", Some((1, 5)));
            history.read(history.asking(), "k", Some((2, 6)));
            let asked = history.deleting("k");
            history.read(history.asking(), "k", None);
            history.deleted(asked, "k", Told::Done, true);
            history.read(history.asking(), "k", None);
            history.read(history.asking(), "other", None);
        });
        assert_eq!(found, None);
    }

    #[test]
    fn what_is_older_than_an_answer_is_found() {
        let stale = found(|history| {
            set(history, 2, 6);
            history.read(history.asking(), "k", Some((1, 5)));
        });
        assert_eq!(stale, Some(Checker::Cache));
        // One that began before the answer may be late.
        let late = found(|history| {
            let asked = history.asking();
            set(history, 2, 6);
            history.read(asked, "k", Some((1, 5)));
        });
        assert_eq!(late, None);
        let lower = found(|history| set(history, 2, 4));
        assert_eq!(lower, Some(Checker::Cache));
    }

    #[test]
    fn a_value_that_is_gone_or_back_without_reason_is_found() {
        let gone = found(|history| history.read(history.asking(), "k", None));
        assert_eq!(gone, Some(Checker::Cache));
        let gone = found(|history| {
            let asked = history.deleting("k");
            history.deleted(asked, "k", Told::Done, false);
        });
        assert_eq!(gone, Some(Checker::Cache));
        let back = found(|history| {
            let asked = history.deleting("k");
            history.deleted(asked, "k", Told::Done, true);
            history.read(history.asking(), "k", Some((1, 5)));
        });
        assert_eq!(back, Some(Checker::Cache));
    }

    #[test]
    fn values_that_nobody_set_and_versions_of_two_are_found() {
        for (tag, version) in [(7, 6), (1, 6)] {
            let found = found(|history| history.read(history.asking(), "k", Some((tag, version))));
            assert_eq!(found, Some(Checker::Cache), "{tag} {version}");
        }
        assert_eq!(found(|history| set(history, 2, 5)), Some(Checker::Cache));
        let refused = found(|history| {
            let asked = history.setting("k", 2, None);
            history.set(asked, 2, Told::Refused, 0);
            history.read(history.asking(), "k", Some((2, 6)));
        });
        assert_eq!(refused, Some(Checker::Cache));
    }

    #[test]
    fn a_replacement_that_did_not_come_right_behind_is_found() {
        let replace = |history: &History, version| {
            let asked = history.setting("k", 3, Some(5));
            history.set(asked, 3, Told::Done, version);
        };
        assert_eq!(found(|history| replace(history, 6)), None);
        let between = found(|history| {
            set(history, 2, 6);
            replace(history, 7);
        });
        assert_eq!(between, Some(Checker::Cache));
    }

    #[test]
    fn numbers_count_each_increment_once() {
        let count = |history: &History, sum| {
            let asked = history.counting("c");
            history.counted(asked, "c", Told::Done, sum);
        };
        let well = found(|history| {
            count(history, 1);
            let asked = history.counting("c");
            history.counted(asked, "c", Told::Unknown, 0);
            count(history, 3);
            history.check_sum("c", 3);
            history.check_sum("c", 2);
        });
        assert_eq!(well, None);
        for sums in [&[1, 1][..], &[2], &[1, 3], &[0]] {
            let found = found(|history| sums.iter().for_each(|sum| count(history, *sum)));
            assert_eq!(found, Some(Checker::Cache), "{sums:?}");
        }
        let twice = found(|history| {
            count(history, 1);
            history.check_sum("c", 2);
        });
        assert_eq!(twice, Some(Checker::Cache));
    }

    #[test]
    fn a_sum_behind_a_higher_one_is_found() {
        let found = found(|history| {
            let unknown = history.counting("c");
            let asked = history.counting("c");
            history.counted(asked, "c", Told::Done, 2);
            let later = history.counting("c");
            history.counted(later, "c", Told::Done, 1);
            history.counted(unknown, "c", Told::Unknown, 0);
        });
        assert_eq!(found, Some(Checker::Cache));
    }
}
