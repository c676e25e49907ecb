//! What answers at an address where no gRPC does: for a failure that says what is probably wrong.
//!
//! A wrong port, or TLS on one side only, otherwise shows as a connection that breaks for no reason. A connection of its own is
//! begun as gRPC begins one, and another one as HTTP/1.1 does, and the first bytes of the answers tell. It is done only for a
//! connection that broke before any server has answered.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::address::Address;

/// The preface of HTTP/2, and settings, which are none.
const AS_HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The head of a frame: what is needed to tell anything from anything else.
const HEAD_BYTES: usize = 9;
const SETTINGS: u8 = 4;
const TLS_ALERT: u8 = 0x15;
const TLS_MAJOR: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Tls,
    Http1,
    Http2,
    SomethingElse,
}

/// What is wrong with an address; `None`: nothing that could be told from here in this time.
pub(super) async fn stranger_at(address: &Address, secure: bool, within: Duration) -> Option<String> {
    let name = address.authority();
    match spoken_at(address, within / 2).await? {
        Speaks::Tls if !secure => Some(format!(
            "{name} speaks TLS, and this client does not: switch it on with ClientBuilder::tls"
        )),
        Speaks::Http2 if secure => Some(format!(
            "{name} does not speak TLS, and this client does: leave TLS out, or give the port that is encrypted"
        )),
        Speaks::Http1 => Some(http_only(address)),
        Speaks::SomethingElse => Some(format!(
            "{name} speaks neither gRPC nor HTTP: it is probably the port of another protocol. gRPC is on 9091 if nothing else \
             is configured"
        )),
        Speaks::Tls | Speaks::Http2 => None,
    }
}

/// What is wrong with an address that speaks HTTP/1.1 and nothing later.
pub(super) fn http_only(address: &Address) -> String {
    format!(
        "{} speaks HTTP/1.1 and not gRPC: it is probably the port of the HTTP API. gRPC is on 9091 if nothing else is configured",
        address.authority()
    )
}

async fn spoken_at(address: &Address, within: Duration) -> Option<Speaks> {
    let first = spoken(&answer_to(AS_HTTP2, address, within).await);
    if !matches!(first, None | Some(Speaks::SomethingElse)) {
        return first;
    }
    // Servers of HTTP/1.1 may hang up on the other without a word.
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        address.authority()
    );
    spoken(&answer_to(request.as_bytes(), address, within).await).or(first)
}

fn spoken(head: &[u8]) -> Option<Speaks> {
    match head {
        [] => None,
        [TLS_ALERT, TLS_MAJOR, ..] => Some(Speaks::Tls),
        [_, _, _, SETTINGS, _, 0, 0, 0, 0] => Some(Speaks::Http2),
        _ if head.starts_with(b"HTTP/1.") => Some(Speaks::Http1),
        _ => Some(Speaks::SomethingElse),
    }
}

/// The first bytes of what is answered; none if nothing is.
async fn answer_to(request: &[u8], address: &Address, within: Duration) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let talk = async {
        let mut stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.write_all(request).await?;
        // What came before it breaks is told all the same.
        stream.take(HEAD_BYTES as u64).read_to_end(&mut head).await
    };
    let _ = tokio::time::timeout(within, talk).await;
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_who_speaks() {
        assert_eq!(spoken(b""), None);
        assert_eq!(spoken(b"\x15\x03\x03\0\x02\x02\x46"), Some(Speaks::Tls));
        assert_eq!(spoken(b"HTTP/1.1 "), Some(Speaks::Http1));
        assert_eq!(spoken(b"\0\0\x12\x04\0\0\0\0\0"), Some(Speaks::Http2));
        assert_eq!(spoken(b"\0\0\x12\x04\0"), Some(Speaks::SomethingElse));
        assert_eq!(spoken(b"-ERR unkn"), Some(Speaks::SomethingElse));
    }
}
