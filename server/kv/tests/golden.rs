//! Bytes of version 1 that lie in logs and checkpoints: what is written today is what was written then, and still means
//! the same. The files in `tests/vectors/kv` are added to, never edited.

#![allow(clippy::unwrap_used, reason = "a test")]

use boltq_core::{Applied, Millis, StateMachine};
use boltq_kv::command::{self, Condition, TimeToLive};
use boltq_kv::{Cache, Outcome, Totals};
use bytes::BytesMut;

const COMMANDS: &str = include_str!("../../../tests/vectors/kv/commands-v1.txt");
const SNAPSHOT: &str = include_str!("../../../tests/vectors/kv/snapshot-v1.txt");
/// When the commands were applied.
const TIME: Millis = Millis(1_767_225_600_000);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.trim().as_bytes().chunks(2).map(digits).collect()
}

/// Every command, each with something to act on except for the first and the last, and what becomes of it.
fn commands() -> Vec<(&'static str, BytesMut, Outcome)> {
    let write = |write: fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        out
    };
    let live = TimeToLive::from_millis;
    let set = |key, value: &[u8], millis, condition, keys_max| {
        let mut out = BytesMut::new();
        command::set(&mut out, key, value, live(millis), condition, keys_max);
        out
    };
    vec![
        ("flush", write(command::flush), Outcome::Removed(0)),
        (
            "set",
            set("count", b" 41\n", 60_000, Condition::Any, 0),
            Outcome::Set(1),
        ),
        (
            "set_if_absent",
            set("größe", br#"{"a":1}"#, 0, Condition::Absent, 0),
            Outcome::Set(2),
        ),
        (
            "set_if_version",
            set("größe", br#"{"a":2}"#, 0, Condition::Version(2), 9),
            Outcome::Set(3),
        ),
        (
            "set_if_present",
            set("gone", b"x", 0, Condition::Present, 0),
            Outcome::Refused(None),
        ),
        (
            "increment",
            write(|out| command::increment(out, "count", 1, TimeToLive::from_millis(5), 9)),
            Outcome::Incremented(Ok((42, 4))),
        ),
        (
            "set_for_a_moment",
            set("old", b"y", 1, Condition::Any, 0),
            Outcome::Set(5),
        ),
        (
            "expire",
            write(|out| command::expire(out, "größe", TimeToLive::from_millis(90_000))),
            Outcome::Expires(true),
        ),
        (
            "delete",
            write(|out| command::delete(out, "old", Condition::Version(5))),
            Outcome::Deleted(true),
        ),
        (
            "touch",
            write(|out| command::touch(out, ["count", "none"].into_iter())),
            Outcome::Touched,
        ),
        ("sweep", write(|out| command::sweep(out, 10)), Outcome::Removed(0)),
    ]
}

#[test]
fn commands_are_written_as_they_were() {
    let written: Vec<_> = commands()
        .iter()
        .map(|(name, bytes, _)| format!("{name} {}", hex(bytes)))
        .collect();
    assert_eq!(written, COMMANDS.lines().collect::<Vec<_>>());
}

#[test]
fn recorded_commands_lead_to_the_recorded_snapshot() {
    let mut cache = Cache::default();
    for (line, (_, _, wanted)) in COMMANDS.lines().zip(commands()) {
        let (name, bytes) = line.split_once(' ').unwrap();
        let mut applied = Applied::default();
        let outcome = cache.apply(TIME, &unhex(bytes), 100, &mut applied).unwrap();
        assert_eq!(outcome, wanted, "{name}");
    }
    assert_eq!(hex(&cache.snapshot()), SNAPSHOT.trim());
}

#[test]
fn the_recorded_snapshot_means_what_it_meant() {
    let cache = Cache::restore(&unhex(SNAPSHOT)).unwrap();
    let count = cache.get("count", TIME).unwrap();
    assert_eq!((&count.value[..], count.version, count.created), (&b"42"[..], 4, TIME));
    assert_eq!(count.expires, Some(TIME.plus(60_000)));
    assert!(cache.get("count", TIME.plus(60_000)).is_none());
    assert_eq!(&cache.get("größe", TIME).unwrap().value[..], br#"{"a":2}"#);
    let totals = Totals {
        sets: 5,
        deletes: 1,
        ..Totals::default()
    };
    assert_eq!((cache.len(TIME), cache.version(), cache.totals()), (2, 7, totals));
    assert_eq!(hex(&cache.snapshot()), SNAPSHOT.trim());
}
