//! One or two files of the write-ahead log. The input is the first file; from [`NEXT_FILE`] on, if that is in there, it is
//! the second.

#![no_main]

use boltq_fuzz::directory::{WALS, exercise};
use boltq_fuzz::sealing;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

const NEXT_FILE: &[u8] = b"--next--";
const RECORDED: &[u8] = include_bytes!("../../tests/vectors/log/v1/wal-0000000000000001.log");
/// A log whose first entries were given up is nothing without it.
const CHECKPOINT: (&str, &[u8]) = (
    "ckp-1-0000000000000003",
    include_bytes!("../../tests/vectors/log/v1/ckp-1-0000000000000003"),
);

fn split(input: &[u8]) -> (&[u8], Option<&[u8]>) {
    match input.windows(NEXT_FILE.len()).position(|at| at == NEXT_FILE) {
        Some(at) => (&input[..at], Some(&input[at + NEXT_FILE.len()..])),
        None => (input, None),
    }
}

fn seal(input: &[u8]) -> Vec<u8> {
    let (first, second) = split(input);
    let mut sealed = sealing::seal(first, 1);
    if let Some(second) = second {
        sealed.extend_from_slice(NEXT_FILE);
        sealed.extend(sealing::seal(second, 2));
    }
    sealed
}

/// With a checkpoint or without.
fn accepted(input: &[u8]) -> bool {
    let (first, second) = split(input);
    let mut files = vec![(WALS[0], first)];
    files.extend(second.map(|second| (WALS[1], second)));
    let without = exercise(&files);
    files.push(CHECKPOINT);
    exercise(&files) || without
}

/// Otherwise nothing would be tested but refusal.
fn check_seeds() {
    assert!(accepted(RECORDED));
    assert!(seal(RECORDED) == RECORDED, "sealing changed frames that are whole");
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    sealing::mutate(data, size, max_size, seed, seal)
});

fuzz_target!(
    init: check_seeds(),
    |data: &[u8]| -> () {
        accepted(data);
    }
);
