//! Snapshots of the queue machine: what is accepted is written as it was read, and works.

#![no_main]

use boltq_core::StateMachine;
use boltq_fuzz::plane;
use boltq_queue::Machine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(machine) = Machine::restore(data) else { return };
    assert_eq!(machine.snapshot(), data);
    let now = machine.now();
    plane::exercise(plane::plane(machine), now);
});
