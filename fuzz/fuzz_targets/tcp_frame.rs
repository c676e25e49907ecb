//! Frames of the binary protocol: stepping through any bytes ends, stays within them, and every body comes back from a
//! frame of our own.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../server/src/doors/tcp/frame.rs"]
mod frame;

use frame::{HEADER_BYTES, Start, Status, put, start};

const STATUSES: [Status; 4] = [Status::Ok, Status::Error, Status::Empty, Status::NotLeader];

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let mut out = Vec::new();
    while let Start::Frame { code, body_bytes, body } = start(rest) {
        let Some(body) = body else {
            assert!(
                body_bytes > rest.len() - HEADER_BYTES,
                "a body that is there is not seen"
            );
            break;
        };
        assert_eq!(body.len(), body_bytes);
        let status = STATUSES[usize::from(code) % STATUSES.len()];
        out.clear();
        assert!(put(&mut out, status, |out| out.extend_from_slice(body)));
        assert_eq!(
            start(&out),
            Start::Frame {
                code: status as u8,
                body_bytes,
                body: Some(body)
            }
        );
        rest = &rest[HEADER_BYTES + body_bytes..];
    }
});
