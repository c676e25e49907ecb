//! Segments: any bytes in the place of one that a checkpoint points into.

#![no_main]

use boltq_fuzz::directory::{CHECKPOINT, SEGMENT, SEGMENT_ID, WALS, exercise};
use boltq_fuzz::sealing;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

const RECORDED: &[u8] = include_bytes!("../../tests/vectors/log/v1/seg-0000000000000004.log");
const ITS_CHECKPOINT: &[u8] = include_bytes!("../../tests/vectors/log/v1/ckp-1-0000000000000006");

fn seal(input: &[u8]) -> Vec<u8> {
    sealing::seal(input, SEGMENT_ID)
}

fn accepted(input: &[u8]) -> bool {
    exercise(&[(SEGMENT, input), (CHECKPOINT, ITS_CHECKPOINT), (WALS[1], &[])])
}

/// Otherwise nothing would be tested but refusal.
fn check_seed() {
    assert!(accepted(RECORDED));
    assert!(seal(RECORDED) == RECORDED, "sealing changed frames that are whole");
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    sealing::mutate(data, size, max_size, seed, seal)
});

fuzz_target!(
    init: check_seed(),
    |data: &[u8]| -> () {
        accepted(data);
    }
);
