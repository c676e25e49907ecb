//! Entries: commands are where they are said to be, and nothing is between them or behind them.

#![no_main]

use boltq_raft::Commands;
use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 9;
const LENGTH_BYTES: usize = 4;

fuzz_target!(|data: &[u8]| {
    let Ok(commands) = Commands::read(data) else {
        return;
    };
    let mut end = HEADER_BYTES;
    for command in commands {
        let Ok(command) = command else { return };
        let start = command.offset as usize;
        assert_eq!(start, end + LENGTH_BYTES);
        end = start + command.bytes.len();
        assert_eq!(&data[start..end], command.bytes);
    }
    assert_eq!(end, data.len());
});
