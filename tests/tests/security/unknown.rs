//! Weakness C5: who did not show a key could hold a connection for as long as it liked.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use boltq_tests::harness::{Server, http};

use crate::keys::{ADMIN, binary, options};

/// Longer than the server waits here, and than a machine stalls.
const WITHIN: Duration = Duration::from_secs(30);

fn start() -> Server {
    Server::start(&options().set("server.auth_timeout", "300ms"))
}

/// Whether the server closes the connection by itself.
fn is_closed(address: std::net::SocketAddr, first: &[u8]) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.write_all(first).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_connection_that_shows_no_key_is_closed_whatever_it_speaks() {
    let server = start();
    for (what, first) in [
        ("nothing", &b""[..]),
        ("half a frame of AUTH", b"\x08\x10\x00\x00\x00{"),
        (
            "a connection of HTTP/2 without a call",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        ),
        ("half a request", b"POST / HT"),
    ] {
        assert!(is_closed(server.messaging(), first), "{what}");
    }
    assert!(is_closed(server.admin(), b""), "nothing, at the admin port");
}

#[test]
fn a_connection_that_has_shown_its_key_or_looks_at_the_health_may_be_silent() {
    let server = start();
    let mut client = binary(&server, ADMIN);
    let mut prober = TcpStream::connect(server.admin()).unwrap();
    let mut ask = || {
        prober.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(br#"{"status":"ok"}"#) {
            let mut byte = [0];
            prober.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
    };
    ask();
    // Another one is closed, so the time is over.
    assert!(is_closed(server.messaging(), b""));
    client.publish("q", &serde_json::json!(1));
    ask();
}

#[test]
fn where_no_key_is_wanted_a_connection_may_be_silent() {
    let options = boltq_tests::harness::ServerOptions::memory().set("server.auth_timeout", "100ms");
    let server = Server::start(&options);
    let mut client = boltq_tests::harness::binary::BinaryClient::connect(server.messaging());
    for _ in 0..10 {
        // Time passes as the server answers others, and some beside that.
        http::get(server.admin(), "/stats").unwrap();
        std::thread::sleep(Duration::from_millis(30));
    }
    client.publish("q", &serde_json::json!(1));
}
