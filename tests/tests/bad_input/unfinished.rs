//! Requests that are begun and not finished: they take bounded memory, for a bounded time, and honest ones go on.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use boltq_proto::queue::v1::subscribe_request::Request as Kind;
use boltq_proto::queue::v1::{PublishRequest, PublishStreamRequest, SubscribeInit, SubscribeRequest};
use boltq_tests::harness::binary::{BinaryClient, command, frame, status};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, message, reason};
use boltq_tests::harness::{Server, ServerOptions, eventually, http, within};
use bytes::Bytes;
use futures_util::{StreamExt, future};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower_service::Service;

use super::watch::Watched;

const MIB: usize = 1 << 20;
const PATH: &str = "/boltq.queue.v1.QueueService/Publish";
/// The node may hold so much of requests; what is above that is overhead of the allocator and of windows.
const BUDGET_BYTES: u64 = 64 << 20;
const OVERHEAD_BYTES_MAX: u64 = 60 << 20;

fn options() -> ServerOptions {
    ServerOptions::memory()
        .set("server.max_request_bytes", BUDGET_BYTES)
        .set("server.max_request_bytes_per_connection", 16 << 20)
}

fn watched(options: &ServerOptions) -> Watched {
    Watched::new(Server::start(options))
}

fn assert_bounded(watched: &Watched) {
    let growth = watched.growth_bytes();
    assert!(growth < BUDGET_BYTES + OVERHEAD_BYTES_MAX, "{} MiB", growth >> 20);
}

/// A gRPC message of 4 MiB without its last 16 bytes. Clones share it.
fn almost_a_message() -> Bytes {
    let mut bytes = vec![0, 0, 0x40, 0, 0];
    bytes.resize(5 + 4 * MIB - 16, b'z');
    bytes.into()
}

/// Sends the start of a body, and nothing more for as long as it runs. Returns what it was refused with.
async fn unfinished(mut channel: Channel, path: &str, bytes: Bytes) -> Status {
    let start = tokio_stream::iter([Ok::<_, Status>(Frame::data(bytes))]);
    let body = StreamBody::new(start.chain(tokio_stream::pending()));
    let request = ::http::Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(body))
        .expect("a request");
    future::poll_fn(|context| channel.poll_ready(context))
        .await
        .expect("a connection");
    let response = channel.call(request).await.expect("an answer");
    if let Some(status) = Status::from_header_map(response.headers()) {
        return status;
    }
    let body = response.into_body().collect().await.expect("a body");
    body.trailers().and_then(Status::from_header_map).expect("a refusal")
}

/// Memory that was given back is with the allocator for some seconds.
async fn check(watched: Watched) {
    eventually(Duration::from_secs(30), "memory is given back", || {
        (watched.growth_bytes() < 30 << 20).then_some(())
    });
    watched.check().await;
}

/// 1.2 GB over one connection, before.
#[tokio::test]
async fn streams_with_unfinished_messages_share_what_a_connection_may_hold() {
    let watched = watched(&options());
    let channel = channel(watched.messaging()).await.unwrap();
    let bytes = almost_a_message();
    let mut attack: Vec<_> = (0..300)
        .map(|_| {
            let (channel, bytes) = (channel.clone(), bytes.clone());
            tokio::spawn(async move { unfinished(channel, PATH, bytes).await })
        })
        .collect();
    // No more than four fit. The others are refused, and told why.
    let mut refused = 0;
    while refused < 290 {
        let (status, _, left) = within(Duration::from_secs(30), "refusals", future::select_all(attack)).await;
        let status = status.unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert_eq!(reason(&status), "TOO_MANY_UNFINISHED_REQUESTS");
        assert_bounded(&watched);
        attack = left;
        refused += 1;
    }
    // Others are served as before, those with large messages too.
    let mut honest = connect(watched.messaging()).await;
    honest.put("q", message(vec![7; 4_000_000])).await;
    assert_eq!(honest.take("q", 1).await.len(), 1);
    attack.iter().for_each(tokio::task::JoinHandle::abort);
    drop((attack, channel));
    check(watched).await;
}

/// 614 MB over 150 connections, before.
#[tokio::test]
async fn frames_without_their_last_byte_share_what_the_node_may_hold() {
    // None of them is given up while they are looked at.
    let watched = watched(&options().set("server.request_stall_timeout", "10m"));
    let body = format!(r#"{{"topic":"q","payload":"{}"}}"#, "z".repeat(4_100_000));
    let whole = frame(command::PUBLISH, body.as_bytes());
    let mut attack: Vec<_> = (0..150)
        .map(|_| {
            let mut client = BinaryClient::connect(watched.messaging());
            // It may be refused before all is sent.
            let _ = client.send_bytes(&whole[..whole.len() - 1]);
            client.set_timeout(Duration::from_millis(5));
            assert_bounded(&watched);
            client
        })
        .collect();
    // A refusal takes as long as it takes. Who has room is not answered.
    let mut refused = 0;
    eventually(
        Duration::from_secs(60),
        "no more of them than there is room for",
        || {
            attack.retain_mut(|client| match client.receive() {
                Ok(reply) => {
                    assert!(reply.error().contains("server.max_request_bytes"), "{reply:?}");
                    refused += 1;
                    false
                }
                Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            });
            assert_bounded(&watched);
            (attack.len() <= 18).then_some(())
        },
    );
    assert!(refused > 50, "{refused}");
    assert!(attack.len() >= 10, "{} are kept", attack.len());
    // Frames of an ordinary size need nothing of it.
    let mut honest = BinaryClient::connect(watched.messaging());
    honest.publish("small", &"x".repeat(10_000).into());
    drop(attack);
    eventually(Duration::from_secs(10), "there is room again", || {
        let mut client = BinaryClient::connect(watched.messaging());
        let reply = client.try_call(command::PUBLISH, &body).ok()?;
        (reply.status == status::OK).then_some(())
    });
    check(watched).await;
}

fn grpc_web(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc-web+proto\r\ncontent-length: 4000005\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&[0, 0, 0x3d, 0x09, 0]).unwrap();
    stream
}

/// 230 MB over 60 connections and for ever, before.
#[tokio::test]
async fn bodies_of_grpc_web_that_stop_are_given_up() {
    let watched = watched(&options().set("server.request_stall_timeout", "1s"));
    let body = vec![b'z'; 3_900_000];
    let mut attack: Vec<_> = (0..60)
        .map(|_| {
            let mut stream = grpc_web(watched.messaging());
            // It may be refused before all is sent.
            let _ = stream.write_all(&body);
            assert_bounded(&watched);
            stream
        })
        .collect();
    let mut given_up = 0;
    for stream in &mut attack {
        let mut answer = Vec::new();
        // Whoever is refused with bytes on their way may see the connection break.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).to_lowercase();
        given_up += usize::from(answer.contains("grpc-status: 4") || answer.contains("grpc-status:4"));
    }
    assert!(given_up > 5, "{given_up}");
    drop(attack);
    check(watched).await;
}

#[tokio::test]
async fn a_message_that_stops_is_given_up_and_silence_between_messages_is_not() {
    let server = Server::start(&options().set("server.request_stall_timeout", "1s"));
    let channel = channel(server.messaging()).await.unwrap();
    // On the same connection: a subscription and a publish stream that have nothing to say.
    let mut subscriber = connect(server.messaging()).await;
    let init = SubscribeRequest {
        request: Some(Kind::Init(SubscribeInit {
            queue: "q".into(),
            ..Default::default()
        })),
    };
    let (_settlements, requests) = mpsc::channel(1);
    let requests = tokio_stream::iter([init]).chain(ReceiverStream::new(requests));
    let mut deliveries = subscriber.subscribe(requests).await.unwrap().into_inner();
    let mut publisher = boltq_tests::harness::grpc::QueueClient::new(channel.clone());
    let (batches, requests) = mpsc::channel(1);
    let mut answers = publisher
        .publish_stream(ReceiverStream::new(requests))
        .await
        .unwrap()
        .into_inner();
    let mut silent = BinaryClient::connect(server.messaging());
    let mut half = BinaryClient::connect(server.messaging());
    half.send_bytes(&frame(command::PING, b"")[..3]).unwrap();

    for path in [PATH, "/boltq.queue.v1.QueueService/PublishStream"] {
        for count in [100, 1_000_000] {
            let started = Instant::now();
            let work = unfinished(channel.clone(), path, almost_a_message().slice(..count));
            let status = within(Duration::from_secs(20), path, work).await;
            assert_eq!(
                (status.code(), reason(&status).as_str()),
                (Code::DeadlineExceeded, "REQUEST_STALLED")
            );
            assert!(started.elapsed() > Duration::from_millis(900));
        }
    }
    let error = half.receive().expect("an answer before the end").error();
    assert!(error.contains("server.request_stall_timeout"), "{error}");
    assert!(half.ends());

    silent.call(command::PING, "").ok();
    let batch = PublishStreamRequest {
        queue: "q".into(),
        messages: vec![message("x")],
        ..PublishStreamRequest::default()
    };
    batches.send(batch).await.unwrap();
    let answer = within(Duration::from_secs(10), "an answer", answers.message()).await;
    assert_eq!(answer.unwrap().unwrap().message_ids.len(), 1);
    let delivered = within(Duration::from_secs(10), "a delivery", deliveries.message()).await;
    assert_eq!(delivered.unwrap().unwrap().deliveries.len(), 1);
}

/// A byte now and then is no progress.
#[test]
fn a_frame_that_drips_is_given_up() {
    let server = Server::start(&options().set("server.request_stall_timeout", "1s"));
    let mut client = BinaryClient::connect(server.messaging());
    client.set_timeout(Duration::from_millis(50));
    client.send_bytes(&[command::PUBLISH, 0, 0, 1, 0]).unwrap();
    let error = eventually(Duration::from_secs(10), "it is given up", || {
        // The reply comes before the connection is closed.
        client.send_bytes(b" ").ok();
        client.receive().ok()
    });
    assert!(error.error().contains("no progress"));
    let metrics = http::get(server.admin(), "/metrics").unwrap();
    assert!(
        metrics.text().contains("boltq_requests_stalled_total 1\n"),
        "{}",
        metrics.text()
    );
}

/// The body of a request to the admin port is counted and watched as well.
#[test]
fn a_body_on_the_admin_port_that_stops_is_given_up() {
    let server = Server::start(&options().set("server.request_stall_timeout", "1s"));
    let mut stream = TcpStream::connect(server.admin()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = "POST /cluster/join HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 100000\r\n\r\n{\"node";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

/// The defaults are for those who use the server as it is meant to be used.
#[tokio::test]
async fn honest_clients_with_large_messages_notice_nothing() {
    let server = Server::start(&ServerOptions::memory());
    let client = connect(server.messaging()).await;
    let payload = Bytes::from(vec![7; 4_100_000]);
    for _ in 0..3 {
        let calls = (0..16).map(|_| {
            let (mut client, payload) = (client.clone(), payload.clone());
            async move {
                let request = PublishRequest {
                    queue: "large".into(),
                    message: Some(message(payload)),
                };
                client.publish(request).await
            }
        });
        for answer in future::join_all(calls).await {
            answer.unwrap();
        }
    }
    let requests: Vec<_> = (0..64)
        .map(|_| PublishStreamRequest {
            queue: "batches".into(),
            messages: vec![message(vec![7; 256]); 128],
            ..PublishStreamRequest::default()
        })
        .chain((0..16).map(|_| PublishStreamRequest {
            queue: "large".into(),
            messages: vec![message(payload.clone())],
            ..PublishStreamRequest::default()
        }))
        .collect();
    let mut client = client;
    let mut answers = client
        .publish_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    for _ in 0..80 {
        let answer = within(Duration::from_secs(30), "an answer", answers.message()).await;
        assert_eq!(answer.unwrap().expect("one for each request").failures, []);
    }
    let body = format!(r#"{{"topic":"large","payload":"{}"}}"#, "z".repeat(4_100_000));
    let mut binary = BinaryClient::connect(server.messaging());
    for _ in 0..8 {
        binary.call(command::PUBLISH, &body).ok();
    }
    assert_eq!(client.look("batches").await.ready, 64 * 128);
    assert_eq!(client.look("large").await.ready, 3 * 16 + 16 + 8);
}

#[tokio::test]
async fn a_thousand_subscriptions_fit_on_one_connection() {
    let server = Server::start(&ServerOptions::memory());
    let client = connect(server.messaging()).await;
    let mut kept = Vec::new();
    for number in 0..1_000 {
        let init = SubscribeRequest {
            request: Some(Kind::Init(SubscribeInit {
                queue: format!("q{}", number % 10),
                ..Default::default()
            })),
        };
        let requests = tokio_stream::iter([init]).chain(tokio_stream::pending());
        let mut client = client.clone();
        let opened = within(Duration::from_secs(10), "a subscription", client.subscribe(requests)).await;
        kept.push(opened.unwrap());
    }
    let mut client = client;
    client.put("other", message("x")).await;
}

/// It was open for ever: nobody waited for it with a timeout.
#[test]
fn half_a_preface_of_http_2_is_given_up() {
    let server = Server::start(&options());
    let mut halves: Vec<_> = ["P", "PRI * HTTP/2.0\r\n"]
        .into_iter()
        .map(|half| {
            let mut stream = TcpStream::connect(server.messaging()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.write_all(half.as_bytes()).unwrap();
            stream
        })
        .collect();
    for stream in &mut halves {
        assert!(matches!(stream.read(&mut [0]), Ok(0)), "closed within 20 s");
    }
}
