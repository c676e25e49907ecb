//! Commands: the input is the data of an entry, applied to a leader with some messages.

#![no_main]

use boltq_core::StateMachine;
use boltq_fuzz::plane;
use boltq_queue::Machine;
use boltq_raft::Commands;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(commands) = Commands::read(data) else {
        return;
    };
    let time = commands.time();
    let mut plane = plane::plane(Machine::restore(&plane::RECORDED).expect("the recorded snapshot"));
    plane.lead(boltq_core::Term(1), time);
    for command in commands {
        let Ok(command) = command else { break };
        // The node stops at a command that it does not know.
        if plane::apply(&mut plane, time, data, command.bytes, command.offset).is_err() {
            break;
        }
    }
    plane::exercise(plane, time);
});
