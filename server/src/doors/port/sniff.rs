//! Which protocol a connection speaks, from its first bytes.
//!
//! HTTP starts with a method or with the preface `PRI`: a capital letter. The binary protocol starts with a command,
//! 0x01-0x18; codes that are no command are its business too, as it has an answer for them. TLS starts with 0x16, which
//! is also a command: there the version byte and the sixth byte decide, because a handshake has 0x01 where a frame has
//! the first byte of a JSON body.

const TLS_HANDSHAKE: u8 = 0x16;
const TLS_MAJOR_VERSION: u8 = 0x03;
const TLS_CLIENT_HELLO: u8 = 0x01;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Binary,
    Http,
    Tls,
}

/// `None`: more bytes are needed, and will come if the client means anything.
pub(super) fn protocol(bytes: &[u8]) -> Option<Protocol> {
    match *bytes {
        [] => None,
        [b'A'..=b'Z', ..] => Some(Protocol::Http),
        [TLS_HANDSHAKE] => None,
        [TLS_HANDSHAKE, TLS_MAJOR_VERSION, ref rest @ ..] => match rest {
            // As a length this is at least 3, so that a frame has a sixth byte too.
            [_, _, _, TLS_CLIENT_HELLO, ..] => Some(Protocol::Tls),
            [_, _, _, _, ..] => Some(Protocol::Binary),
            _ => None,
        },
        _ => Some(Protocol::Binary),
    }
}

/// What a connection of HTTP/2 starts with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether it is known which HTTP is spoken.
pub(super) fn http_is_known(bytes: &[u8]) -> bool {
    bytes.len() >= PREFACE.len() || !PREFACE.starts_with(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HELLO: [u8; 6] = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];

    #[test]
    fn each_protocol_is_known_by_its_first_bytes() {
        for (bytes, wanted) in [
            (&b"PRI * HTTP/2.0"[..], Some(Protocol::Http)),
            (b"GET / HTTP/1.1", Some(Protocol::Http)),
            (b"P", Some(Protocol::Http)),
            (&[0x01], Some(Protocol::Binary)),
            (&[0x18], Some(Protocol::Binary)),
            (&[0x00], Some(Protocol::Binary)),
            (&[0x7f], Some(Protocol::Binary)),
            (&[0xff], Some(Protocol::Binary)),
            (&HELLO, Some(Protocol::Tls)),
            (&HELLO[..5], None),
            (&HELLO[..1], None),
            (&[], None),
            // A BIND_QUEUE of 0 bytes, and one of 3 + 256 bytes that starts like TLS.
            (&[0x16, 0, 0, 0, 0], Some(Protocol::Binary)),
            (&[0x16, 0x03, 0x01, 0, 0, b'{'], Some(Protocol::Binary)),
        ] {
            assert_eq!(protocol(bytes), wanted, "{bytes:?}");
        }
    }

    #[test]
    fn http_is_known_from_the_first_byte_that_differs_or_from_the_whole_preface() {
        for (bytes, wanted) in [
            (&b"P"[..], false),
            (b"PO", true),
            (b"G", true),
            (b"PRI * HTTP/2.0\r\n", false),
            (b"PRI * HTTP/1.1", true),
            (PREFACE, true),
        ] {
            assert_eq!(http_is_known(bytes), wanted, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn more_bytes_never_change_the_answer(bytes: Vec<u8>) {
            let mut known = None;
            for end in 0..=bytes.len() {
                let now = protocol(&bytes[..end]);
                prop_assert!(known.is_none() || known == now);
                known = now;
            }
        }

        #[test]
        fn six_bytes_are_always_enough(bytes: [u8; 6]) {
            prop_assert!(protocol(&bytes).is_some());
        }
    }
}
