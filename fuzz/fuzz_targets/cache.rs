//! The cache: the input is a snapshot, a length in front of it, and then commands, each with its length.

#![no_main]

use boltq_core::codec::Reader;
use boltq_core::{Millis, StateMachine};
use boltq_fuzz::cache;
use boltq_kv::Cache;
use libfuzzer_sys::fuzz_target;

/// When the recorded commands were applied.
const TIME: Millis = Millis(1_767_225_600_000);

fuzz_target!(|data: &[u8]| {
    let mut reader = Reader::new(data);
    let Ok(snapshot) = reader.bytes("snapshot") else { return };
    let mut state = Cache::default();
    if !snapshot.is_empty() {
        let Ok(restored) = Cache::restore(snapshot) else { return };
        assert_eq!(restored.snapshot(), snapshot);
        state = restored;
    }
    while let Ok(command) = reader.bytes("command") {
        // The node stops at a command that it does not know.
        if cache::apply(&mut state, TIME, command).is_err() {
            break;
        }
    }
    cache::exercise(state, TIME);
});
