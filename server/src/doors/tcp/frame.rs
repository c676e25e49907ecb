//! Frames: a code byte, the length of the body as little-endian u32, the body. The same in both directions.

use boltq_core::limits::FRAME_BYTES_MAX;

/// Code and length.
pub(super) const HEADER_BYTES: usize = 5;

/// Status bytes of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    Error = 1,
    Empty = 2,
    NotLeader = 3,
}

/// What the bytes received so far start with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start<'a> {
    /// Not even a header.
    Nothing,
    /// A header. `body` is there if all of it is.
    Frame {
        code: u8,
        body_bytes: usize,
        body: Option<&'a [u8]>,
    },
}

/// Reads the start of `bytes`. The length is not checked here: what is allowed depends on who asks.
pub(super) fn start(bytes: &[u8]) -> Start<'_> {
    let Some((&[code, b0, b1, b2, b3], rest)) = bytes.split_first_chunk() else {
        return Start::Nothing;
    };
    let body_bytes = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
    Start::Frame {
        code,
        body_bytes,
        body: rest.get(..body_bytes),
    }
}

/// Appends a frame whose body `write` appends. Returns whether it is within the limit; if not, nothing was appended.
pub(super) fn put(out: &mut Vec<u8>, status: Status, write: impl FnOnce(&mut Vec<u8>)) -> bool {
    let at = out.len();
    out.extend_from_slice(&[status as u8, 0, 0, 0, 0]);
    write(out);
    let body_bytes = out.len() - at - HEADER_BYTES;
    match u32::try_from(body_bytes) {
        Ok(length) if body_bytes <= FRAME_BYTES_MAX => {
            out[at + 1..at + HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
            true
        }
        _ => {
            out.truncate(at);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_is_read_before_its_body_is_there() {
        for end in 0..5 {
            assert_eq!(start(&[6, 1, 0, 0, 0][..end]), Start::Nothing);
        }
        let there = |body| Start::Frame {
            code: 6,
            body_bytes: 1,
            body,
        };
        assert_eq!(start(&[6, 1, 0, 0, 0]), there(None));
        assert_eq!(start(&[6, 1, 0, 0, 0, 9]), there(Some(&[9][..])));
        assert_eq!(start(&[6, 1, 0, 0, 0, 9, 9]), there(Some(&[9][..])));
    }

    #[test]
    fn lengths_are_little_endian() {
        let bytes = [1, 1, 0, 0x40, 0];
        assert_eq!(
            start(&bytes),
            Start::Frame {
                code: 1,
                body_bytes: 4_194_305,
                body: None
            }
        );
    }

    #[test]
    fn a_body_over_the_limit_leaves_no_trace() {
        let mut out = b"before".to_vec();
        assert!(!put(&mut out, Status::Ok, |out| out
            .resize(out.len() + FRAME_BYTES_MAX + 1, 0)));
        assert_eq!(out, b"before");
        assert!(put(&mut out, Status::Ok, |out| out.resize(out.len() + FRAME_BYTES_MAX, 0)));
    }

    proptest! {
        #[test]
        fn what_is_put_is_read_back(body: Vec<u8>, behind: Vec<u8>) {
            let mut out = Vec::new();
            prop_assert!(put(&mut out, Status::NotLeader, |out| out.extend_from_slice(&body)));
            prop_assert_eq!(out.len(), HEADER_BYTES + body.len());
            out.extend_from_slice(&behind);
            let whole = Start::Frame { code: 3, body_bytes: body.len(), body: Some(&body[..]) };
            prop_assert_eq!(start(&out), whole);
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            if let Start::Frame { body: Some(body), .. } = start(&bytes) {
                prop_assert!(body.len() + HEADER_BYTES <= bytes.len());
            }
        }
    }
}
