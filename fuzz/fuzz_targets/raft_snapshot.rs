//! Snapshots from another node: the input is their chunks, with [`NEXT_CHUNK`] between them. They are installed in a log, or
//! refused; a log that took one over is opened again with the same state.

#![no_main]

use boltq_core::GroupId;
use boltq_fuzz::directory::{disk, open, read};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

const NEXT_CHUNK: &[u8] = b"--next--";
const SEED: &[u8] = include_bytes!("../seeds/raft_snapshot/recorded");
const GROUP: GroupId = GroupId(1);

fn chunks(input: &[u8]) -> Vec<Bytes> {
    let (mut chunks, mut rest) = (Vec::new(), input);
    while let Some(at) = rest.windows(NEXT_CHUNK.len()).position(|at| at == NEXT_CHUNK) {
        chunks.push(Bytes::copy_from_slice(&rest[..at]));
        rest = &rest[at + NEXT_CHUNK.len()..];
    }
    chunks.push(Bytes::copy_from_slice(rest));
    chunks
}

fn accepted(input: &[u8]) -> bool {
    let disk = disk(&[]);
    let log = open(&disk).expect("an empty directory");
    let group = log.group(GROUP);
    let before = group.raft_state();
    let installed = boltq_raft::fuzzing::install(&group, &chunks(input));
    let after = group
        .checkpoint()
        .map(|checkpoint| (checkpoint.applied, checkpoint.state));
    match &installed {
        Ok(state) => assert_eq!(after.as_ref().map(|(_, state)| state), Some(state)),
        Err(_) => assert!(
            after.is_none() && group.raft_state() == before,
            "a refused snapshot changed something"
        ),
    }
    read(&group);
    log.close();
    drop((group, log));
    let log = open(&disk).expect("a directory that took over a snapshot is opened again");
    let group = log.group(GROUP);
    let again = group
        .checkpoint()
        .map(|checkpoint| (checkpoint.applied, checkpoint.state));
    assert_eq!(again, after);
    read(&group);
    log.close();
    installed.is_ok()
}

/// Otherwise nothing would be tested but refusal.
fn check_seed() {
    assert!(accepted(SEED));
}

fuzz_target!(
    init: check_seed(),
    |data: &[u8]| -> () {
        accepted(data);
    }
);
