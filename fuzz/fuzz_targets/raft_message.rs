//! What groups on different nodes say to each other: requests, answers, heads of snapshots, memberships. What is accepted is
//! written as it was read, so each has one form.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = boltq_raft::fuzzing::message(&Bytes::copy_from_slice(data));
});
