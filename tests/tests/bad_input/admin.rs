//! Bad input on the admin port.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::{Random, Server, ServerOptions, http};
use serde_json::json;

use super::watch::Watched;

fn watched() -> Watched {
    Watched::new(Server::start(&ServerOptions::memory()))
}

#[tokio::test]
async fn random_bytes_never_hurt() {
    let mut random = Random::from_environment("random_bytes_never_hurt");
    let watched = watched();
    for round in 0..200 {
        let count = random.within(1..4000) as usize;
        let mut bytes = if round % 2 == 0 {
            b"GET /stats HTTP/1.1\r\n".to_vec()
        } else {
            Vec::new()
        };
        bytes.extend(random.bytes(count));
        let mut stream = TcpStream::connect(watched.admin()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        // It may close before all is written.
        let _ = stream.write_all(&bytes);
        let _ = stream.read(&mut [0; 256]);
    }
    watched.check().await;
}

#[tokio::test]
async fn strange_paths_methods_and_bodies_are_answered() {
    let watched = watched();
    for path in [
        "/../..",
        "/%00",
        "/stats/%2e%2e",
        "/stats?%ff",
        "/stats?api_key=%",
        "//",
        "/health/.",
        "/METRICS",
    ] {
        let response = http::get(watched.admin(), path).unwrap();
        assert!((200..500).contains(&response.status), "{path}: {}", response.status);
    }
    for method in ["PUT", "DELETE", "PATCH", "TRACE", "BREW"] {
        let response = http::request(watched.admin(), method, "/stats", &[], b"{").unwrap();
        assert!((400..500).contains(&response.status), "{method}: {}", response.status);
    }
    watched.check().await;
}

#[tokio::test]
async fn endless_headers_and_paths_are_cut_off() {
    let watched = watched();
    for part in ["x", "a: b\r\n"] {
        let mut stream = TcpStream::connect(watched.admin()).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(b"GET /").unwrap();
        if part.contains(':') {
            stream.write_all(b"stats HTTP/1.1\r\n").unwrap();
        }
        let block = part.repeat(10_000);
        let accepted = (0..2_000)
            .take_while(|_| stream.write_all(block.as_bytes()).is_ok())
            .count();
        assert!(
            accepted < 2_000,
            "the whole of {} MB was accepted",
            (2_000 * block.len()) >> 20
        );
    }
    watched.check().await;
}

#[tokio::test]
async fn clients_that_wait_in_the_middle_of_a_request_do_not_keep_others_out() {
    let watched = watched();
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(watched.admin()).unwrap();
            stream.write_all(b"GET /stats HT").unwrap();
            stream
        })
        .collect();
    assert_eq!(http::get(watched.admin(), "/stats").unwrap().status, 200);
    drop(slow);
    watched.check().await;
}

/// Section 1: "read 10 s".
#[tokio::test]
async fn a_request_that_never_ends_is_given_up() {
    let watched = watched();
    let mut stream = TcpStream::connect(watched.admin()).unwrap();
    stream.write_all(b"GET /stats HTTP/1.1\r\nhost: a\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .expect("the server closes the connection within 20 s");
    watched.check().await;
}

#[tokio::test]
async fn names_in_metrics_and_statistics_are_escaped() {
    let watched = watched();
    let mut client = BinaryClient::connect(watched.messaging());
    let name = "quote\" back\\slash {brace} </script> \u{2028}";
    client.publish(name, &json!(1));
    assert_eq!(http::get(watched.admin(), "/stats").unwrap().json()["Queues"][name], 1);
    let metrics = http::get(watched.admin(), "/metrics").unwrap();
    for line in metrics.text().lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').expect("a sample");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    watched.check().await;
}
