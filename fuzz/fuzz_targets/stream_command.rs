//! Commands of a stream group, each with its length, from nothing on.

#![no_main]

use boltq_core::Millis;
use boltq_core::codec::Reader;
use boltq_fuzz::stream;
use boltq_stream::Machine;
use libfuzzer_sys::fuzz_target;

/// When the recorded commands were applied.
const TIME: Millis = Millis(1_767_225_600_000);

fuzz_target!(|data: &[u8]| {
    let mut reader = Reader::new(data);
    let mut machine = Machine::default();
    let mut stored = 0;
    while let Ok(command) = reader.bytes("command") {
        // The node stops at a command that it does not know.
        let Ok((_, change)) = stream::apply(&mut machine, TIME, command) else {
            break;
        };
        stored += change;
    }
    assert_eq!(stream::stored(&machine), stored, "what is stored is not what there is");
    stream::exercise(machine, TIME);
});
