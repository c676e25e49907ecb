//! Caches that anybody's bytes led to.

use boltq_core::{Applied, DecodeError, Millis, StateMachine};
use boltq_kv::command::{self, Condition, TimeToLive};
use boltq_kv::{Cache, Outcome, Pattern};
use bytes::BytesMut;

/// Half of what a snapshot may say.
const VERSION_MAX: u64 = 1 << 61;

/// Applies a command, and checks that one that is refused changes nothing.
pub fn apply(cache: &mut Cache, time: Millis, command: &[u8]) -> Result<Outcome, DecodeError> {
    let before = cache.snapshot();
    let mut applied = Applied::default();
    let outcome = cache.apply(time, command, 0, &mut applied);
    if outcome.is_err() {
        assert_eq!(cache.snapshot(), before, "a refused command changed something");
        assert!(applied.effects.is_empty());
    }
    outcome
}

/// Reads and changes it in every way, and checks that what it counts agrees with what it has, and that the state survives
/// being written and read.
pub fn exercise(mut cache: Cache, now: Millis) {
    check(&cache, now);
    if cache.version() > VERSION_MAX {
        return;
    }
    let run = |cache: &mut Cache, write: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        apply(cache, now, &out).expect("a command that was just written")
    };
    let live = TimeToLive::from_millis;
    let keys = cache.list(Pattern::All, None, now).take(4);
    let keys: Vec<String> = keys.map(|(key, _)| key.to_owned()).collect();
    run(&mut cache, &|out| command::touch(out, keys.iter().map(String::as_str)));
    for key in &keys {
        run(&mut cache, &|out| command::expire(out, key, live(5)));
        run(&mut cache, &|out| command::increment(out, key, 1, live(0), 0));
        run(&mut cache, &|out| {
            command::set(out, key, b"v", live(7), Condition::Present, 3)
        });
    }
    run(&mut cache, &|out| command::sweep(out, 2));
    check(&cache, now);
    if let Some(key) = keys.first() {
        run(&mut cache, &|out| command::delete(out, key, Condition::Any));
        assert!(cache.get(key, now).is_none());
    }
    check(&cache, Millis::MAX);
    run(&mut cache, &|out| command::flush(out));
    assert_eq!((cache.bytes(), cache.len(now)), (0, 0));
}

fn check(cache: &Cache, now: Millis) {
    let all: Vec<_> = cache.list(Pattern::All, None, now).collect();
    assert_eq!(all.len(), cache.len(now));
    assert!(all.is_sorted_by(|one, other| one.0 < other.0), "keys are not in order");
    let bytes: usize = all.iter().map(|(key, entry)| key.len() + entry.value.len()).sum();
    assert!(bytes as u64 <= cache.bytes(), "there is more than is counted");
    let snapshot = cache.snapshot();
    let restored = Cache::restore(&snapshot).expect("a snapshot that was written");
    assert_eq!(restored.snapshot(), snapshot);
}
