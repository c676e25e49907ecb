//! Bad input on the messaging port, as frames and as bytes of no protocol at all.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, command, frame, status};
use boltq_tests::harness::{Random, Server, ServerOptions, eventually};
use serde_json::json;

use super::watch::Watched;

fn watched() -> Watched {
    Watched::new(Server::start(&ServerOptions::memory()))
}

#[tokio::test]
async fn frames_over_the_limit_cost_nothing() {
    let watched = watched();
    for length in [4 * 1024 * 1024 + 1, u32::MAX, 1 << 31] {
        for _ in 0..100 {
            let mut client = BinaryClient::connect(watched.messaging());
            let header = [&[command::PUBLISH][..], &length.to_le_bytes()].concat();
            client.send_bytes(&header).unwrap();
            assert!(client.ends());
        }
    }
    watched.check().await;
}

/// A header may announce 4 MiB. Memory for them has to follow the bytes that come, not the promise.
#[tokio::test]
async fn announced_bodies_that_never_come_cost_nothing() {
    let watched = watched();
    let silent: Vec<BinaryClient> = (0..300)
        .map(|_| {
            let mut client = BinaryClient::connect(watched.messaging());
            client.send_bytes(&[command::PUBLISH, 0, 0, 0x40, 0]).unwrap();
            client.send_bytes(br#"{"topic":"q","#).unwrap();
            client
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        watched.growth_bytes() < 40 << 20,
        "{} MiB for 300 connections",
        watched.growth_bytes() >> 20
    );
    drop(silent);
    watched.check().await;
}

#[tokio::test]
async fn connections_that_say_nothing_or_half_a_header_do_not_keep_others_out() {
    let watched = watched();
    let mut silent = Vec::new();
    for bytes in 0..5 {
        for _ in 0..60 {
            let mut client = BinaryClient::connect(watched.messaging());
            client.send_bytes(&[command::PING, 0, 0, 0, 0][..bytes]).unwrap();
            silent.push(client);
        }
    }
    BinaryClient::connect(watched.messaging()).call(command::PING, "").ok();
    // The slowest of clients is still a client.
    for client in &mut silent[240..] {
        client.send_bytes(&[0]).unwrap();
        client.receive().unwrap().ok();
    }
    drop(silent);
    watched.check().await;
}

#[tokio::test]
async fn random_bytes_never_hurt() {
    let mut random = Random::from_environment("random_bytes_never_hurt");
    let watched = watched();
    for _ in 0..300 {
        let count = random.within(1..2000) as usize;
        let mut bytes = random.bytes(count);
        // Half of them begin like the binary protocol, a few like HTTP/2.
        match random.within(0..8) {
            0..4 => bytes[0] = 1 + bytes[0] % 24,
            4 => bytes.splice(0..0, *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").for_each(drop),
            _ => {}
        }
        let mut stream = TcpStream::connect(watched.messaging()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        // It may close before all is written.
        let _ = stream.write_all(&bytes);
        let _ = stream.read(&mut [0; 256]);
    }
    watched.check().await;
}

#[tokio::test]
async fn random_bodies_in_good_frames_are_answered() {
    let mut random = Random::from_environment("random_bodies_in_good_frames");
    let watched = watched();
    let mut client = BinaryClient::connect(watched.messaging());
    let alphabet = br#"{}[]":,\u0019tfn"topic""payload""id"e.-+ "#;
    for _ in 0..5_000 {
        let count = random.within(0..60);
        let body: Vec<u8> = (0..count)
            .map(|_| alphabet[random.within(0..alphabet.len() as u64) as usize])
            .collect();
        let command = random.within(1..0x20) as u8;
        client.send(command, &body).unwrap();
        let reply = client.receive().unwrap();
        assert!(reply.status <= status::EMPTY, "{reply:?}");
        if reply.status != status::EMPTY {
            reply.json();
        }
    }
    watched.check().await;
}

#[tokio::test]
async fn json_that_is_nested_a_million_deep_is_answered() {
    let watched = watched();
    let mut client = BinaryClient::connect(watched.messaging());
    let deep = ["[".repeat(1_000_000), "]".repeat(1_000_000)].concat();
    for member in ["payload", "headers", "unknown", "topic"] {
        let body = format!(r#"{{"topic":"deep","{member}":{deep}}}"#);
        client.send(command::PUBLISH, body.as_bytes()).unwrap();
        let reply = client.receive().unwrap();
        assert!(reply.status <= status::ERROR, "{member}");
    }
    let objects = "{\"a\":".repeat(500_000);
    client.send(command::CONSUME, objects.as_bytes()).unwrap();
    assert!(client.receive().unwrap().error().starts_with("invalid json"));
    while client.call(command::CONSUME, r#"{"topic":"deep"}"#).status == status::OK {}
    watched.check().await;
}

#[tokio::test]
async fn names_of_100_kb_are_refused_and_not_kept() {
    let watched = watched();
    let mut client = BinaryClient::connect(watched.messaging());
    for number in 0..200 {
        let name = format!("{number}{}", "x".repeat(100_000));
        client
            .call(command::PUBLISH, &json!({"topic": name}).to_string())
            .error();
        client
            .call(command::CONSUME, &json!({"topic": name}).to_string())
            .error();
        let id_error = client.call(command::ACK, &json!({"id": name}).to_string()).error();
        assert!(id_error.contains("not found in pending"), "{:.80}", id_error);
    }
    watched.check().await;
}

/// Weakness A13, A17: names were paths, and each name cost tens of megabytes.
#[tokio::test]
async fn names_are_neither_paths_nor_expensive() {
    let server = Server::start(&ServerOptions::disk());
    let directory = server.directory().clone();
    let before: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    let watched = Watched::new(server);
    let mut client = BinaryClient::connect(watched.messaging());
    for name in [
        "../escape",
        "../../escape",
        "/tmp/escape",
        ".",
        "..",
        "a/b",
        "con",
        "a\\b",
        "%2e%2e%2f",
        "~",
    ] {
        client.publish(name, &json!(1));
        client.consume(name).unwrap();
    }
    for number in 0..3_000 {
        client.consume(&format!("unknown {number}"));
    }
    let after: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(before.len(), after.len(), "{after:?}");
    assert!(!std::path::Path::new("/tmp/escape").exists());
    watched.check().await;
}

#[tokio::test]
async fn a_tls_hello_on_the_plain_port_ends_the_connection() {
    let watched = watched();
    // Record header of 512 bytes, then the type of a ClientHello.
    let mut hello = vec![0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];
    hello.resize(5 + 512, 0x11);
    let mut stream = TcpStream::connect(watched.messaging()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(&hello).unwrap();
    let answer = stream.read(&mut [0; 16]);
    assert!(
        matches!(answer, Ok(0) | Err(_)) && !answer.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    );
    watched.check().await;
}

/// A client that sends requests and reads no replies is held back, and costs bounded memory.
#[tokio::test]
async fn a_client_that_reads_nothing_is_held_back() {
    let watched = watched();
    let mut publisher = BinaryClient::connect(watched.messaging());
    publisher.publish("fat", &json!("x".repeat(1_000_000)));
    let mut stream = TcpStream::connect(watched.messaging()).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    // Each STATS is answered with a few hundred bytes, each PING with 22: far more than socket buffers hold.
    let requests = [frame(command::STATS, b""), frame(command::PING, b"")]
        .concat()
        .repeat(10_000);
    let mut written = 0;
    while written < 200 && stream.write_all(&requests).is_ok() {
        written += 1;
    }
    assert!(written < 200, "40 MB of replies were accepted without a reader");
    assert!(
        watched.growth_bytes() < 40 << 20,
        "{} MiB",
        watched.growth_bytes() >> 20
    );
    drop(stream);
    watched.check().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_for_too_long_is_cut_off() {
    let server = Server::start(&ServerOptions::memory().set("server.idle_write_timeout", "500ms"));
    let mut patient = BinaryClient::connect(server.messaging());
    patient.call(command::PING, "").ok();
    let mut stream = TcpStream::connect(server.messaging()).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let requests = frame(command::STATS, b"").repeat(10_000);
    let cut_off = || match stream.write_all(&requests) {
        Err(error) => {
            use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
            matches!(error.kind(), BrokenPipe | ConnectionReset).then_some(())
        }
        Ok(()) => None,
    };
    eventually(Duration::from_secs(10), "the connection is closed", cut_off);
    patient.call(command::PING, "").ok();
    Watched::new(server).check().await;
}

#[tokio::test]
async fn connections_over_the_limit_are_closed_and_those_below_are_served() {
    let server = Server::start(&ServerOptions::memory().set("server.max_connections", 5));
    let mut clients: Vec<BinaryClient> = (0..5).map(|_| BinaryClient::connect(server.messaging())).collect();
    for client in &mut clients {
        client.call(command::PING, "").ok();
    }
    let mut refused = BinaryClient::connect(server.messaging());
    assert!(refused.try_call(command::PING, "").is_err());
    for client in &mut clients {
        client.call(command::PING, "").ok();
    }
    clients.pop();
    eventually(Duration::from_secs(5), "its place is free", || {
        BinaryClient::connect(server.messaging())
            .try_call(command::PING, "")
            .ok()
    });
}

/// Descriptors of closed connections leaked.
#[tokio::test]
async fn closed_connections_leave_nothing_open() {
    let server = Server::start(&ServerOptions::memory());
    BinaryClient::connect(server.messaging()).call(command::PING, "").ok();
    let before = server.stat().open_files();
    for round in 0..300 {
        let mut client = BinaryClient::connect(server.messaging());
        match round % 3 {
            0 => client.call(command::PING, "").json(),
            1 => client.send_bytes(&[0x47]).map_or(json!(0), |()| json!(1)),
            _ => json!(2),
        };
    }
    eventually(Duration::from_secs(10), "all are closed", || {
        (server.stat().open_files() <= before + 2).then_some(())
    });
    Watched::new(server).check().await;
}
