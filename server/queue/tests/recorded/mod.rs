//! What the tests of recorded bytes have in common. The files in `tests/vectors/queue` have a command in each line, its name and
//! its bytes in hexadecimal digits, or a snapshot.

use boltq_core::{Applied, Millis, StateMachine};
use boltq_queue::{Machine, Outcome, Settings};
use bytes::BytesMut;

/// When the commands were applied.
pub(crate) const TIME: Millis = Millis(1_767_225_600_000);
/// Where a command began in its entry.
const OFFSET: u32 = 100;

#[allow(dead_code, reason = "not all of the tests begin to lead")]
pub(crate) const SETTINGS: Settings = Settings {
    max_retry: 5,
    backoff_first_ms: 100,
    backoff_max_ms: 30_000,
    ack_timeout_ms: 30_000,
    dedup_ttl_ms: 600_000,
    dedup_keys_max: 1_000,
};

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.trim().as_bytes().chunks(2).map(digits).collect()
}

/// The commands of a file, by their names.
pub(crate) fn recorded(commands: &'static str) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    commands.lines().map(|line| {
        let (name, bytes) = line.split_once(' ').unwrap();
        (name, unhex(bytes))
    })
}

/// A command as it is written today.
pub(crate) fn write(write: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    write(&mut out);
    out
}

/// That these are the commands of a file.
pub(crate) fn assert_written(commands: &[(&'static str, BytesMut)], recorded: &str) {
    let line = |(name, bytes): &(&str, BytesMut)| format!("{name} {}", hex(bytes));
    let written: Vec<_> = commands.iter().map(line).collect();
    assert_eq!(written, recorded.lines().collect::<Vec<_>>());
}

pub(crate) fn apply(machine: &mut Machine, command: &[u8]) -> Outcome {
    apply_to(machine, command, &mut Applied::default())
}

/// As `apply`, for who wants to know what the store is told.
pub(crate) fn apply_to(machine: &mut Machine, command: &[u8], applied: &mut Applied<boltq_queue::Effect>) -> Outcome {
    machine.apply(TIME, command, OFFSET, applied).unwrap()
}
