//! TLS on the ports for clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_tests::harness::binary::{BinaryClient, command, frame};
use boltq_tests::harness::grpc::{QueueCalls, message};
use boltq_tests::harness::tls::{Authority, channel, connect};
use boltq_tests::harness::{Directory, Server, ServerOptions, StartError, eventually, http};
use serde_json::json;

const WITHIN: Duration = Duration::from_secs(30);

/// A server with a certificate that `authority` has signed.
pub(crate) fn start(authority: &Authority, options: ServerOptions) -> Server {
    let directory = Arc::new(Directory::new());
    let identity = authority.issue(directory.path(), "server");
    let options = authority.options(options, &identity);
    Server::start_in(&options, directory).unwrap_or_else(|error| panic!("{error}"))
}

fn get(server: &Server, authority: &Authority, path: &str) -> http::Response {
    let stream = connect(server.admin(), &authority.client(None, &["http/1.1"])).unwrap();
    http::request_over(stream, ("GET", path), &[], b"").unwrap()
}

#[tokio::test]
async fn grpc_is_spoken_over_tls() {
    let authority = Authority::new();
    let server = start(&authority, ServerOptions::memory());
    let channel = channel(server.messaging(), authority.client(None, &["h2"]))
        .await
        .unwrap();
    let mut queues = QueueServiceClient::new(channel);
    queues.put("q", message(vec![7; 1 << 20])).await;
    let delivery = queues.take_one("q").await;
    assert_eq!(delivery.payload.len(), 1 << 20);
    assert_eq!(queues.done(&[delivery]).await, 1);
}

#[test]
fn the_binary_protocol_is_spoken_over_tls_on_the_same_port() {
    let authority = Authority::new();
    let server = start(&authority, ServerOptions::memory().set("security.api_key", "s3cret"));
    // Clients of this protocol name none.
    let config = authority.client(None, &[]);
    let mut client = BinaryClient::over_tls(connect(server.messaging(), &config).unwrap());
    client.call(command::AUTH, r#"{"api_key":"s3cret"}"#).ok();
    let large = "x".repeat(1 << 20);
    client.publish("q", &json!(large));
    let pings: Vec<u8> = (0..100).flat_map(|_| frame(command::PING, b"")).collect();
    client.send_bytes(&pings).unwrap();
    for _ in 0..100 {
        client.receive().unwrap().ok();
    }
    assert_eq!(client.consume("q").unwrap().payload(), &json!(large));
}

/// BIND_QUEUE has the same first byte as TLS, which has to make no difference inside of it.
#[test]
fn what_is_said_inside_of_tls_is_told_apart_as_ever() {
    let authority = Authority::new();
    let server = start(&authority, ServerOptions::memory());
    let config = authority.client(None, &[]);
    let mut client = BinaryClient::over_tls(connect(server.messaging(), &config).unwrap());
    client.call(command::EXCHANGE_DECLARE, r#"{"name":"e"}"#).ok();
    // The length of 0x0103 bytes is written as the version of TLS is.
    let bind = format!("{:<259}", json!({"exchange": "e", "queue": "q", "binding_key": "k"}));
    client.call(command::BIND_QUEUE, &bind).ok();
    let grpc_web = connect(server.messaging(), &authority.client(None, &["http/1.1"])).unwrap();
    assert_eq!(
        http::request_over(grpc_web, ("GET", "/"), &[], b"").unwrap().status,
        404
    );
}

#[test]
fn the_admin_port_speaks_https_and_tells_until_when_the_certificate_holds() {
    let authority = Authority::new();
    let server = start(&authority, ServerOptions::memory());
    assert_eq!(get(&server, &authority, "/readyz").status, 200);
    let metrics = get(&server, &authority, "/metrics");
    let expires = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("boltq_tls_certificate_expires_seconds "));
    assert!(expires.unwrap().parse::<u64>().unwrap() > 1_700_000_000);
    assert!(metrics.text().contains("\nboltq_tls_files_refused 0\n"));
}

#[test]
fn old_versions_and_strange_protocols_are_refused_in_the_handshake() {
    let authority = Authority::new();
    let server = start(&authority, ServerOptions::memory());
    let h2 = connect(server.admin(), &authority.client(None, &["h2"]));
    assert!(h2.is_err(), "the admin port speaks HTTP/1.1 alone");
    let stranger = Authority::new();
    assert!(
        connect(server.messaging(), &stranger.client(None, &["h2"])).is_err(),
        "it believes somebody else"
    );
}

/// What somebody answers who does not speak TLS, until the end.
fn answer(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("it is not closed: {error}"),
        _ => answer,
    }
}

#[test]
fn plain_bytes_are_refused_with_a_line_that_says_why() {
    let authority = Authority::new();
    let server = start(&authority, ServerOptions::memory());
    for bytes in [
        &b"GET /stats HTTP/1.1\r\nhost: a\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &frame(command::PING, b"{}"),
        &frame(command::BIND_QUEUE, b"{}"),
    ] {
        for address in [server.messaging(), server.admin()] {
            let answer = answer(address, bytes);
            // An alert of TLS at most: its first byte.
            assert!(answer.is_empty() || answer[0] == 0x15, "{answer:?}");
        }
    }
    let log = server.log();
    assert!(
        log.contains("closing a connection that does not speak TLS: server.tls.enabled is set"),
        "{log}"
    );
}

#[test]
fn tls_to_a_port_without_it_is_refused_with_a_line_that_says_why() {
    let server = Server::start(&ServerOptions::memory());
    assert!(connect(server.messaging(), &Authority::new().client(None, &["h2"])).is_err());
    eventually(WITHIN, "the line", || {
        server.log().contains("server.tls.enabled is not set").then_some(())
    });
}

/// The first bytes of a handshake, and no more.
const HALF_A_HELLO: [u8; 6] = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];

#[test]
fn half_a_handshake_keeps_nobody_out_and_is_given_up() {
    let authority = Authority::new();
    let server = start(&authority, ServerOptions::memory());
    let mut open: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(server.messaging()).unwrap();
            stream.write_all(&HALF_A_HELLO).unwrap();
            stream
        })
        .collect();
    let config = authority.client(None, &[]);
    let mut client = BinaryClient::over_tls(connect(server.messaging(), &config).unwrap());
    client.publish("q", &json!(1));
    let first = &mut open[0];
    first.set_read_timeout(Some(WITHIN)).unwrap();
    assert!(
        matches!(first.read(&mut [0]), Ok(0) | Err(_)),
        "the time for a handshake is over"
    );
    assert!(
        get(&server, &authority, "/metrics")
            .text()
            .contains("\nboltq_connections{port=\"messaging\"} ")
    );
    eventually(WITHIN, "all of them are counted as failed", || {
        let metrics = get(&server, &authority, "/metrics");
        let failed = metrics
            .text()
            .lines()
            .find_map(|line| line.strip_prefix("boltq_tls_handshakes_failed_total "));
        (failed.unwrap().parse::<u64>().unwrap() >= 50).then_some(())
    });
}

#[test]
fn half_a_handshake_counts_as_a_connection() {
    let authority = Authority::new();
    let server = start(&authority, ServerOptions::memory().set("server.max_connections", 3));
    let _open: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = TcpStream::connect(server.messaging()).unwrap();
            stream.write_all(&HALF_A_HELLO).unwrap();
            stream
        })
        .collect();
    eventually(WITHIN, "the port is full", || {
        connect(server.messaging(), &authority.client(None, &[]))
            .is_err()
            .then_some(())
    });
    eventually(WITHIN, "their time is over", || {
        connect(server.messaging(), &authority.client(None, &[])).ok()
    });
}

fn refused(authority: &Authority, change: impl FnOnce(&std::path::Path, ServerOptions) -> ServerOptions) -> StartError {
    let directory = Arc::new(Directory::new());
    let identity = authority.issue(directory.path(), "server");
    let options = change(directory.path(), authority.options(ServerOptions::memory(), &identity));
    Server::start_in(&options, directory).expect_err("files that are of no use")
}

#[test]
fn files_that_are_missing_or_do_not_belong_together_stop_the_start_and_are_named() {
    let authority = Authority::new();
    let missing = refused(&authority, |_, options| {
        options.set("server.tls.key_file", "/nowhere/key.pem")
    });
    assert!(
        missing
            .log
            .contains("server.tls: key \"/nowhere/key.pem\": No such file"),
        "{}",
        missing.log
    );
    let mismatched = refused(&authority, |directory, options| {
        let other = authority.issue(directory, "other");
        options.set("server.tls.key_file", other.key.to_str().unwrap())
    });
    assert!(
        mismatched.log.contains("server.tls: certificate \""),
        "{}",
        mismatched.log
    );
    let none = refused(&authority, |_, options| options.set("server.tls.cert_file", ""));
    assert!(none.log.contains("TLS needs a certificate"), "{}", none.log);
    for error in [missing, mismatched, none] {
        assert!(error.status.is_some_and(|status| !status.success()) && !error.log.contains("panicked"));
    }
}

#[test]
fn certificates_of_clients_are_wanted_as_configured() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for (client_auth, without, wrong) in [
        ("none", true, true),
        ("optional", true, false),
        ("required", false, false),
    ] {
        let directory = Arc::new(Directory::new());
        let identity = authority.issue(directory.path(), "server");
        let options = authority
            .options(ServerOptions::memory(), &identity)
            .set(
                "server.tls.ca_file",
                authority.write(directory.path()).to_str().unwrap(),
            )
            .set("server.tls.client_auth", client_auth);
        let client = authority.issue(directory.path(), "client");
        let options = options.tls(authority.client(Some(&client), &["http/1.1"]));
        let forged = stranger.issue(directory.path(), "forged");
        let server = Server::start_in(&options, directory).unwrap_or_else(|error| panic!("{error}"));
        let is_let_in = |identity| {
            let config = authority.client(identity, &[]);
            // With TLS 1.3 the client hears only afterwards that it is refused.
            let stream = connect(server.messaging(), &config);
            stream.is_ok_and(|stream| BinaryClient::over_tls(stream).try_call(command::PING, "").is_ok())
        };
        let let_in = [is_let_in(Some(&client)), is_let_in(None), is_let_in(Some(&forged))];
        assert_eq!(let_in, [true, without, wrong], "{client_auth}");
    }
}
