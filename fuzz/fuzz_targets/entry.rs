//! Entries: commands are where they are said to be, and packing them again gives the entry.

#![no_main]

use bytes::BufMut;
use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "parts of it are for the proposer")]
#[path = "../../server/raft/src/entry.rs"]
mod entry;

use entry::{Commands, Proposal, pack};

fuzz_target!(|data: &[u8]| {
    let Ok(commands) = Commands::read(data) else { return };
    let time = commands.time();
    let mut proposal = Proposal::new();
    for command in commands {
        let Ok(command) = command else { return };
        assert_eq!(&data[command.offset as usize..][..command.bytes.len()], command.bytes);
        proposal.begin().put_slice(command.bytes);
    }
    proposal.end();
    assert_eq!(pack(time, [&proposal].into_iter(), proposal.len()), data);
});
