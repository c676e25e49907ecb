//! Requests of HTTP/1 that are refused while their bodies are on their way: the answer arrives, whoever sends how much.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use boltq_tests::harness::{Server, ServerOptions, http};

const KEY: &str = "s3cret";
const BODY_BYTES: usize = 8_000_000;

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Sends head and body to their ends, and only then looks for the answer: status, and what is said in it.
fn send_first(address: SocketAddr, path: &str, headers: &str) -> io::Result<(u16, String)> {
    let mut stream = connect(address);
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\n{headers}content-length: {BODY_BYTES}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(&vec![b' '; BODY_BYTES])?;
    answer(&mut BufReader::new(stream))
}

fn answer(stream: &mut impl BufRead) -> io::Result<(u16, String)> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(line.clone()))?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        stream.read_line(&mut header)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

#[test]
fn who_sends_eight_megabytes_before_it_looks_gets_the_refusal() {
    let open = Server::start(&ServerOptions::memory());
    let locked = Server::start(&ServerOptions::memory().set("security.api_key", KEY));
    for (server, path, status) in [
        (&open, "/publish", 413),
        (&open, "/nowhere", 404),
        (&open, "/stats", 405),
        (&locked, "/publish", 401),
    ] {
        for connection in ["", "connection: close\r\n"] {
            for round in 0..5 {
                match send_first(server.admin(), path, connection) {
                    Ok((found, text)) => assert_eq!(found, status, "{path}: {text}"),
                    Err(error) => panic!("{path}, {connection:?}, round {round}: {error}"),
                }
            }
        }
    }
    // gRPC-Web comes over HTTP/1 too.
    let web = "content-type: application/grpc-web+proto\r\n";
    send_first(open.messaging(), "/boltq.queue.v1.QueueService/NoSuchCall", web).unwrap();
}

#[test]
fn who_is_not_listened_to_gets_that_answer_as_well() {
    let options = ServerOptions::memory()
        .set("security.api_key", KEY)
        .set("security.auth_failures_per_minute", 1);
    let server = Server::start(&options);
    let wrong = "x-api-key: wrong\r\n";
    // One more guess a minute is looked at.
    let answers = (0..5).map(|_| send_first(server.admin(), "/publish", wrong).expect("an answer").0);
    let answers: Vec<u16> = answers.collect();
    assert!(
        answers.iter().all(|status| [401, 429].contains(status)) && answers.contains(&429),
        "{answers:?}"
    );
}

#[test]
fn the_connection_of_a_refused_request_can_be_used_again() {
    let server = Server::start(&ServerOptions::memory());
    let mut stream = BufReader::new(connect(server.admin()));
    for _ in 0..3 {
        let head = format!("POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        stream.get_mut().write_all(&vec![b' '; BODY_BYTES]).unwrap();
        assert_eq!(answer(&mut stream).unwrap().0, 404);
        stream
            .get_mut()
            .write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        assert_eq!(answer(&mut stream).unwrap().0, 200);
    }
}

/// The rest of a body is not received without end, and costs no memory.
#[test]
fn who_goes_on_sending_or_does_not_go_on_is_closed() {
    let server = Server::start(&ServerOptions::memory());
    let mut endless = connect(server.admin());
    let head = "POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000000\r\n\r\n";
    endless.write_all(head.as_bytes()).unwrap();
    let block = vec![b' '; 1 << 20];
    let accepted = (0..200).take_while(|_| endless.write_all(&block).is_ok()).count();
    assert!(accepted < 100, "{accepted} MiB were accepted");
    let mut silent = connect(server.admin());
    silent.write_all(head.as_bytes()).unwrap();
    silent.write_all(b"begun").unwrap();
    let mut answered = Vec::new();
    silent.read_to_end(&mut answered).expect("it is closed within 30 s");
    assert!(answered.starts_with(b"HTTP/1.1 404 "));
    assert_eq!(http::get(server.admin(), "/health").unwrap().status, 200);
}

/// A client that has no more to say, and does not send what it announced.
#[test]
fn who_breaks_off_is_answered_and_closed() {
    let server = Server::start(&ServerOptions::memory());
    let mut stream = connect(server.admin());
    stream
        .write_all(b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nhalf")
        .unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answered = Vec::new();
    stream.read_to_end(&mut answered).unwrap();
    assert!(
        answered.starts_with(b"HTTP/1.1 404 "),
        "{}",
        String::from_utf8_lossy(&answered)
    );
}
