//! One port for several protocols.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::harness::*;

#[tokio::test]
async fn http_1_is_answered_as_http() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client
        .send(b"GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    let answer = client.closed().await;
    assert!(
        answer.starts_with(b"HTTP/1.1 404 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[tokio::test]
async fn http_2_is_known_however_slowly_it_begins() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.stream.set_nodelay(true).unwrap();
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
        client.send(&[*byte]).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.send(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    // A SETTINGS frame on stream 0.
    let mut header = [0; 9];
    timeout(PATIENCE, client.stream.read_exact(&mut header))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((header[3], &header[5..]), (4, &[0; 4][..]));
}

#[tokio::test]
async fn tls_is_turned_away() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client
        .send(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc])
        .await;
    let mut rest = Vec::new();
    // Closed, or reset because the rest of the handshake was not read.
    let _ = timeout(PATIENCE, client.stream.read_to_end(&mut rest))
        .await
        .expect("still open");
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn a_command_that_looks_like_tls_is_a_command() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let refused = error("invalid json: EOF while parsing a value at line 1 column 0");
    assert_eq!(client.ask(0x16, "").await, refused);
    let mut client = server.client().await;
    // 0x0203 bytes: the first six bytes of a handshake but for the last.
    let refused = error("exchange and queue are required");
    assert_eq!(client.ask(0x16, &format!("{{}}{}", " ".repeat(0x0201))).await, refused);
}

#[tokio::test]
async fn one_connection_too_many_is_closed_and_there_is_room_again_later() {
    let server = Server::start_with(|config| config.server.connections_max = 2).await;
    let (mut one, mut two) = (server.client().await, server.client().await);
    assert_eq!(one.ask(PING, "").await, status("pong"));
    assert_eq!(two.ask(PING, "").await, status("pong"));
    let mut three = server.client().await;
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, three.stream.read_to_end(&mut rest))
        .await
        .expect("still open");
    assert_eq!(rest, b"");
    one.stream.shutdown().await.unwrap();
    one.closed().await;
    let room = async {
        loop {
            let mut client = server.client().await;
            client.stream.write_all(&frame(PING, "")).await.unwrap();
            let mut byte = [0];
            if matches!(client.stream.read(&mut byte).await, Ok(1)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, room).await.expect("no room");
}
