//! The cache against a model that is obviously right: a list in the order of use.

use boltq_core::{Applied, Millis, StateMachine};
use bytes::BytesMut;
use proptest::prelude::*;

use crate::command::{self, Condition, TimeToLive};
use crate::{Cache, Change, IncrementError, Outcome, Pattern};

/// What a client asks for.
#[derive(Debug, Clone)]
enum Ask {
    Set(u8, String, u64, Condition, u64),
    Delete(u8, Condition),
    Expire(u8, u64),
    Increment(u8, i64, u64, u64),
    Flush,
    Sweep(u32),
    Touch(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    key: String,
    value: String,
    expires: Option<u64>,
    created: u64,
    version: u64,
}

/// Rows in the order of use, the last one last.
#[derive(Debug, Default)]
struct Model {
    rows: Vec<Row>,
    version: u64,
}

fn key(number: u8) -> String {
    format!("k{number}")
}

impl Model {
    fn position(&self, key: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.key == key)
    }

    fn take(&mut self, key: &str) -> Option<Row> {
        self.position(key).map(|at| self.rows.remove(at))
    }

    fn end_expired(&mut self, now: u64, key: &str) {
        let over = |row: &Row| row.key == key && row.expires.is_some_and(|end| end <= now);
        if self.rows.iter().any(over) {
            self.rows.retain(|row| !over(row));
            self.version += 1;
        }
    }

    fn refuses(&self, key: &str, condition: Condition) -> Option<Outcome> {
        let version = self.position(key).map(|at| self.rows[at].version);
        let met = match condition {
            Condition::Any => true,
            Condition::Absent => version.is_none(),
            Condition::Present => version.is_some(),
            Condition::Version(wanted) => version == Some(wanted),
        };
        (!met).then_some(Outcome::Refused(version))
    }

    fn put(&mut self, now: u64, row: Row, keys_max: u64) -> u64 {
        self.take(&row.key);
        self.version += 1;
        let version = self.version;
        self.rows.push(Row { version, ..row });
        while keys_max > 0 && self.rows.len() as u64 > keys_max {
            let over = self.rows.iter().filter(|row| row.expires.is_some_and(|end| end <= now));
            let first = over.min_by_key(|row| (row.expires, row.key.clone()));
            let gone = first.map_or(self.rows[0].key.clone(), |row| row.key.clone());
            self.take(&gone);
            self.version += 1;
        }
        version
    }

    fn apply(&mut self, now: u64, ask: &Ask) -> Outcome {
        let end = |live: u64| (live > 0).then(|| now + live);
        match ask {
            Ask::Set(number, value, live, condition, keys_max) => {
                self.end_expired(now, &key(*number));
                self.refuses(&key(*number), *condition).unwrap_or_else(|| {
                    let row = Row {
                        key: key(*number),
                        value: value.clone(),
                        expires: end(*live),
                        created: now,
                        version: 0,
                    };
                    Outcome::Set(self.put(now, row, *keys_max))
                })
            }
            Ask::Delete(number, condition) => {
                self.end_expired(now, &key(*number));
                self.refuses(&key(*number), *condition).unwrap_or_else(|| {
                    let was = self.take(&key(*number)).is_some();
                    self.version += u64::from(was);
                    Outcome::Deleted(was)
                })
            }
            Ask::Expire(number, live) => {
                self.end_expired(now, &key(*number));
                let row = self.take(&key(*number));
                let was = row.is_some();
                if let Some(row) = row {
                    self.version += 1;
                    self.rows.push(Row {
                        expires: end(*live),
                        version: self.version,
                        ..row
                    });
                }
                Outcome::Expires(was)
            }
            Ask::Increment(number, by, live, keys_max) => {
                self.end_expired(now, &key(*number));
                let there = self.position(&key(*number)).map(|at| self.rows[at].clone());
                let row = there.unwrap_or_else(|| Row {
                    key: key(*number),
                    value: "0".to_owned(),
                    expires: end(*live),
                    created: now,
                    version: 0,
                });
                let Ok(value) = row.value.trim().parse::<i64>() else {
                    return Outcome::Incremented(Err(IncrementError::NotAnInteger(row.value)));
                };
                let Some(sum) = value.checked_add(*by) else {
                    return Outcome::Incremented(Err(IncrementError::Overflow { value, by: *by }));
                };
                let row = Row {
                    value: sum.to_string(),
                    ..row
                };
                Outcome::Incremented(Ok((sum, self.put(now, row, *keys_max))))
            }
            Ask::Flush => {
                let count = self.rows.len() as u64;
                self.rows.clear();
                self.version += u64::from(count > 0);
                Outcome::Removed(count)
            }
            Ask::Sweep(keys_max) => {
                let mut over: Vec<(u64, String)> = self
                    .rows
                    .iter()
                    .filter_map(|row| Some((row.expires.filter(|end| *end <= now)?, row.key.clone())))
                    .collect();
                over.sort();
                over.truncate(*keys_max as usize);
                self.rows.retain(|row| !over.iter().any(|(_, key)| *key == row.key));
                self.version += over.len() as u64;
                Outcome::Removed(over.len() as u64)
            }
            Ask::Touch(numbers) => {
                for number in numbers {
                    if let Some(row) = self.take(&key(*number)) {
                        self.rows.push(row);
                    }
                }
                Outcome::Touched
            }
        }
    }
}

fn encode(ask: &Ask) -> BytesMut {
    let mut out = BytesMut::new();
    let live = TimeToLive::from_millis;
    match ask {
        Ask::Set(number, value, ttl, condition, keys_max) => {
            command::set(
                &mut out,
                &key(*number),
                value.as_bytes(),
                live(*ttl),
                *condition,
                *keys_max,
            );
        }
        Ask::Delete(number, condition) => command::delete(&mut out, &key(*number), *condition),
        Ask::Expire(number, ttl) => command::expire(&mut out, &key(*number), live(*ttl)),
        Ask::Increment(number, by, ttl, keys_max) => {
            command::increment(&mut out, &key(*number), *by, live(*ttl), *keys_max);
        }
        Ask::Flush => command::flush(&mut out),
        Ask::Sweep(keys_max) => command::sweep(&mut out, *keys_max),
        Ask::Touch(numbers) => {
            let keys: Vec<String> = numbers.iter().map(|number| key(*number)).collect();
            command::touch(&mut out, keys.iter().map(String::as_str));
        }
    }
    out
}

fn apply(cache: &mut Cache, now: u64, ask: &Ask) -> (Outcome, Vec<Change>) {
    let mut applied = Applied::default();
    let outcome = cache.apply(Millis(now), &encode(ask), 0, &mut applied).unwrap();
    (outcome, applied.effects)
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        6 => Just(Condition::Any),
        1 => Just(Condition::Absent),
        1 => Just(Condition::Present),
        2 => (0..20_u64).prop_map(Condition::Version),
    ]
}

fn live() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..30_u64]
}

fn ask() -> impl Strategy<Value = Ask> {
    let number = || 0..6_u8;
    let keys_max = || prop_oneof![3 => Just(0), 1 => 1..5_u64];
    let value = prop_oneof![
        Just("text".to_owned()),
        Just(String::new()),
        any::<i64>().prop_map(|number| format!(" {number}\n")),
        Just(i64::MAX.to_string())
    ];
    let by = || prop_oneof![Just(1), any::<i64>()];
    prop_oneof![
        6 => (number(), value, live(), condition(), keys_max()).prop_map(|(n, v, l, c, m)| Ask::Set(n, v, l, c, m)),
        2 => (number(), condition()).prop_map(|(n, c)| Ask::Delete(n, c)),
        2 => (number(), live()).prop_map(|(n, l)| Ask::Expire(n, l)),
        4 => (number(), by(), live(), keys_max()).prop_map(|(n, b, l, m)| Ask::Increment(n, b, l, m)),
        1 => Just(Ask::Flush),
        1 => (0..3_u32).prop_map(Ask::Sweep),
        2 => proptest::collection::vec(0..8_u8, 0..4).prop_map(Ask::Touch),
    ]
}

/// What watchers would make of the changes.
fn follow(seen: &mut Vec<(String, u64)>, changes: Vec<Change>) {
    for change in changes {
        let (key, put) = match &change {
            Change::Put { key, version } => (key.to_string(), Some(*version)),
            Change::Removed { key, .. } => (key.to_string(), None),
            Change::Flushed { .. } => {
                seen.clear();
                continue;
            }
        };
        seen.retain(|(other, _)| *other != key);
        seen.extend(put.map(|version| (key, version)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn it_does_what_the_model_does(asks in proptest::collection::vec((0..12_u64, ask(), any::<bool>()), 1..120)) {
        let (mut cache, mut model, mut now) = (Cache::default(), Model::default(), 1);
        let mut seen = Vec::new();
        let mut captured = (cache.capture(), cache.snapshot());
        for (pause, ask, restart) in asks {
            now += pause;
            let (outcome, changes) = apply(&mut cache, now, &ask);
            prop_assert_eq!(&outcome, &model.apply(now, &ask), "{:?}", ask);
            follow(&mut seen, changes);
            if restart {
                // What was captured some commands ago is of that moment still.
                let mut written = BytesMut::new();
                captured.0.write(&mut written);
                prop_assert_eq!(written, captured.1);
                let before = cache.snapshot();
                captured = (cache.capture(), before.clone());
                cache = Cache::restore(&before).unwrap();
                prop_assert_eq!(cache.snapshot(), before);
            }
            compare(&cache, &model, now)?;
            let mut wanted: Vec<(String, u64)> = model.rows.iter().map(|row| (row.key.clone(), row.version)).collect();
            wanted.sort();
            seen.sort();
            prop_assert_eq!(&seen, &wanted);
        }
    }

    #[test]
    fn any_bytes_are_a_command_or_refused_and_change_nothing_then(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let mut cache = Cache::default();
        apply(&mut cache, 1, &Ask::Set(1, "v".to_owned(), 5, Condition::Any, 0));
        let before = cache.snapshot();
        let mut applied = Applied::default();
        if cache.apply(Millis(9), &bytes, 0, &mut applied).is_err() {
            prop_assert_eq!(cache.snapshot(), before);
            prop_assert!(applied.effects.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_a_snapshot_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(cache) = Cache::restore(&bytes) {
            prop_assert_eq!(cache.snapshot(), bytes);
        }
    }
}

fn compare(cache: &Cache, model: &Model, now: u64) -> Result<(), TestCaseError> {
    let alive = |row: &&Row| row.expires.is_none_or(|end| now < end);
    let mut rows: Vec<Row> = model.rows.iter().filter(alive).cloned().collect();
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    let listed: Vec<Row> = cache
        .list(Pattern::All, None, Millis(now))
        .map(|(key, entry)| Row {
            key: key.to_owned(),
            value: String::from_utf8(entry.value.to_vec()).unwrap(),
            expires: entry.expires.map(|end| end.0),
            created: entry.created.0,
            version: entry.version,
        })
        .collect();
    prop_assert_eq!(&listed, &rows);
    prop_assert_eq!(cache.len(Millis(now)), rows.len());
    prop_assert_eq!(cache.version(), model.version);
    let bytes: usize = model.rows.iter().map(|row| row.key.len() + row.value.len()).sum();
    prop_assert_eq!(cache.bytes(), bytes as u64);
    for row in &rows {
        prop_assert_eq!(
            cache.get(&row.key, Millis(now)).map(|entry| entry.version),
            Some(row.version)
        );
    }
    Ok(())
}

#[test]
fn the_key_that_was_used_longest_ago_makes_room_and_never_the_one_just_set() {
    let mut cache = Cache::default();
    let set = |number| Ask::Set(number, "v".to_owned(), 0, Condition::Any, 2);
    apply(&mut cache, 1, &set(1));
    apply(&mut cache, 1, &set(2));
    apply(&mut cache, 1, &Ask::Touch(vec![1]));
    apply(&mut cache, 1, &set(3));
    let keys: Vec<&str> = cache.list(Pattern::All, None, Millis(1)).map(|(key, _)| key).collect();
    assert_eq!(keys, ["k1", "k3"]);
    apply(&mut cache, 1, &Ask::Increment(4, 1, 0, 1));
    assert_eq!(cache.list(Pattern::All, None, Millis(1)).count(), 1);
    assert!(cache.get("k4", Millis(1)).is_some());
    assert_eq!(cache.totals().evicted, 3);
}

#[test]
fn a_snapshot_that_counts_more_than_anybody_could_is_refused() {
    let mut bytes = Cache::default().snapshot();
    let version = 9;
    bytes[version..version + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(Cache::restore(&bytes).is_err());
}

#[test]
fn lists_go_on_after_a_key() {
    let mut cache = Cache::default();
    for number in 0..6 {
        apply(&mut cache, 1, &Ask::Set(number, String::new(), 0, Condition::Any, 0));
    }
    let list = |pattern, after| -> Vec<String> {
        let keys = cache.list(Pattern::parse(pattern), after, Millis(1));
        keys.map(|(key, _)| key.to_owned()).collect()
    };
    assert_eq!(list("k*", Some("k3")), ["k4", "k5"]);
    assert_eq!(list("k*", Some("")).len(), 6);
    assert_eq!(list("k3", None), ["k3"]);
    assert!(list("k3", Some("k3")).is_empty());
    assert_eq!(list("*3", Some("k1")), ["k3"]);
    assert!(list("l*", None).is_empty());
}
