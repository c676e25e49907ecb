//! Snapshots of the queue machine: what is accepted is written as it was read, unless it is of an earlier format, and works.

#![no_main]

use boltq_core::StateMachine;
use boltq_fuzz::plane;
use boltq_queue::Machine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(machine) = Machine::restore(data) else { return };
    let written = machine.snapshot();
    if written != data {
        // Due times stood elsewhere up to format 3.
        assert!(data[0] < written[0]);
        let again = Machine::restore(&written).expect("a snapshot that was written");
        assert_eq!(again.snapshot(), written);
    }
    let now = machine.now();
    plane::exercise(plane::plane(machine), now);
});
