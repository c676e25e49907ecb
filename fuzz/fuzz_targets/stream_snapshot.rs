//! Snapshots of a stream group: what is accepted is written as it was read, and works.

#![no_main]

use boltq_core::StateMachine;
use boltq_fuzz::stream;
use boltq_stream::Machine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(machine) = Machine::restore(data) else { return };
    assert_eq!(machine.snapshot(), data);
    let now = machine.now();
    stream::exercise(machine, now);
});
