//! Bad input over HTTP/2 and in gRPC messages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use boltq_proto::queue::v1::{AckRequest, ConsumeRequest, PublishRequest, PublishResponse, PublishStreamRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, message};
use boltq_tests::harness::{Random, Server, ServerOptions, http, within};
use bytes::{BufMut, Bytes};
use http_paths::{PUBLISH, PUBLISH_STREAM, SUBSCRIBE};
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};
use tonic_prost::{ProstCodec, ProstDecoder};

use super::watch::Watched;

mod http_paths {
    pub(super) const PUBLISH: &str = "/boltq.queue.v1.QueueService/Publish";
    pub(super) const PUBLISH_STREAM: &str = "/boltq.queue.v1.QueueService/PublishStream";
    pub(super) const SUBSCRIBE: &str = "/boltq.queue.v1.QueueService/Subscribe";
}

/// Sends any bytes as a message.
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = PublishResponse;
    type Encoder = BytesEncoder;
    type Decoder = ProstDecoder<PublishResponse>;

    fn encoder(&mut self) -> BytesEncoder {
        BytesEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<PublishResponse, PublishResponse>::default().decoder()
    }
}

struct BytesEncoder;

impl Encoder for BytesEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

fn watched() -> Watched {
    Watched::new(Server::start(&ServerOptions::memory()))
}

#[tokio::test]
async fn messages_that_do_not_decode_are_refused() {
    let mut random = Random::from_environment("messages_that_do_not_decode");
    let watched = watched();
    let mut client = tonic::client::Grpc::new(channel(watched.messaging()).await.unwrap());
    for path in [PUBLISH, PUBLISH_STREAM, SUBSCRIBE] {
        for round in 0..100 {
            let count = random.within(1..200) as usize;
            let mut bytes = random.bytes(count);
            if round == 0 {
                // A member that announces four gigabytes.
                bytes = vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, b'q'];
            }
            client.ready().await.unwrap();
            let stream = tokio_stream::iter([Bytes::from(bytes)]);
            let call = client.streaming(Request::new(stream), path.parse().unwrap(), BytesCodec);
            // Refused, or by chance a message that can be answered; but answered, and in time.
            if let Ok(response) = within(Duration::from_secs(10), path, call).await {
                let mut responses = response.into_inner();
                let _ = within(Duration::from_secs(10), path, responses.message()).await;
            }
        }
    }
    watched.check().await;
}

#[tokio::test]
async fn oversized_messages_are_refused_again_and_again() {
    let watched = watched();
    let mut client = connect(watched.messaging()).await;
    for _ in 0..20 {
        let request = PublishRequest {
            queue: "q".into(),
            message: Some(message(vec![0; 8 << 20])),
        };
        let status = client.publish(request).await.unwrap_err();
        assert!(
            matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted),
            "{status:?}"
        );
    }
    drop(client);
    tokio::time::sleep(Duration::from_millis(300)).await;
    watched.check().await;
}

#[tokio::test]
async fn huge_metadata_is_refused() {
    let watched = watched();
    for _ in 0..10 {
        let mut client = connect(watched.messaging()).await;
        let mut request = Request::new(ConsumeRequest {
            queue: "q".into(),
            ..Default::default()
        });
        request
            .metadata_mut()
            .insert("x-api-key", "k".repeat(200_000).parse().unwrap());
        client.consume(request).await.unwrap_err();
    }
    watched.check().await;
}

#[tokio::test]
async fn extreme_members_are_refused_or_clamped() {
    let watched = watched();
    let mut client = connect(watched.messaging()).await;
    let extreme = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    for (seconds, nanos) in [
        (i64::MAX, i32::MAX),
        (i64::MIN, i32::MIN),
        (1, -1),
        (-1, 1),
        (0, i32::MIN),
        (315_576_000_001, 0),
    ] {
        for message in [
            Message {
                delay: extreme(seconds, nanos),
                ..message("x")
            },
            Message {
                ttl: extreme(seconds, nanos),
                ..message("x")
            },
            Message {
                priority: i32::MIN,
                ..message("x")
            },
            Message {
                content_type: "x".repeat(100_000),
                ..message("x")
            },
        ] {
            let request = PublishRequest {
                queue: "q".into(),
                message: Some(message),
            };
            if let Err(status) = client.publish(request).await {
                assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            }
        }
        let consume = ConsumeRequest {
            queue: "q".into(),
            max_messages: u32::MAX,
            wait: extreme(seconds, nanos),
            lease: extreme(seconds, nanos),
        };
        assert_eq!(client.consume(consume).await.unwrap_err().code(), Code::InvalidArgument);
    }
    let tokens: Vec<Bytes> = (0..500).map(|length| Bytes::from(vec![0xaa; length])).collect();
    let request = AckRequest {
        delivery_tokens: tokens.clone(),
        message_ids: tokens,
    };
    let answer = client.ack(request).await.unwrap().into_inner();
    assert_eq!((answer.settled, answer.failures.len()), (0, 1000));
    watched.check().await;
}

#[tokio::test]
async fn names_of_any_utf8_are_taken_or_refused() {
    let watched = watched();
    let mut client = connect(watched.messaging()).await;
    let mut random = Random::from_environment("names_of_any_utf8");
    for _ in 0..300 {
        let count = random.within(1..120);
        let name: String = (0..count)
            .filter_map(|_| char::from_u32(random.within(0..0x11_0000) as u32))
            .collect();
        let request = PublishRequest {
            queue: name.clone(),
            message: Some(message("x")),
        };
        let fine = !name.is_empty() && name.len() <= 200 && !name.chars().any(char::is_control);
        match client.publish(request).await {
            Ok(_) => assert!(fine, "{name:?}"),
            Err(status) => assert!(!fine && status.code() == Code::InvalidArgument, "{name:?}: {status:?}"),
        }
    }
    watched.check().await;
}

#[tokio::test]
async fn streams_that_are_opened_and_left_alone_cost_little() {
    let watched = watched();
    let mut open = Vec::new();
    for _ in 0..10 {
        let mut client = connect(watched.messaging()).await;
        for _ in 0..100 {
            let pending = tokio_stream::pending::<boltq_proto::queue::v1::PublishStreamRequest>();
            open.push(
                within(
                    Duration::from_secs(5),
                    "the stream opens",
                    client.publish_stream(pending),
                )
                .await
                .unwrap(),
            );
        }
    }
    assert!(
        watched.growth_bytes() < 40 << 20,
        "{} MiB for 1000 streams",
        watched.growth_bytes() >> 20
    );
    drop(open);
    watched.check().await;
}

/// The slowest of clients, a byte at a time, from the first byte of the connection on.
#[tokio::test]
async fn a_request_that_drips_is_a_request() {
    let watched = watched();
    let mut stream = TcpStream::connect(watched.messaging()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let head = format!(
        "POST {PUBLISH} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/grpc-web+proto\r\n\
         content-length: 13\r\n\r\n"
    );
    // Queue "drip" and an empty message.
    let body = b"\0\0\0\0\x08\x0a\x04drip\x12\0";
    for byte in head.as_bytes().iter().chain(body) {
        stream.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert_eq!(connect(watched.messaging()).await.look("drip").await.ready, 1);
    watched.check().await;
}

#[tokio::test]
async fn http_1_on_the_grpc_port_is_answered_or_closed() {
    let watched = watched();
    let long = format!("/{}", "x".repeat(100_000));
    for (method, path) in [
        ("GET", "/../../etc/passwd"),
        ("BREW", "/"),
        ("GET", &long),
        ("POST", PUBLISH),
        ("GET", "*"),
    ] {
        // What matters is that the server stands.
        let _ = http::request(
            watched.messaging(),
            method,
            path,
            &[("content-type", "application/grpc")],
            b"junk",
        );
    }
    watched.check().await;
}

/// Two bytes each on the wire, and fifty times as many in memory.
#[tokio::test]
async fn many_empty_messages_in_a_request_are_refused_before_they_take_memory() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    client.put("q", message("x")).await;
    let before = server.stat().rss_bytes();
    let request = PublishStreamRequest {
        queue: "q".into(),
        messages: vec![Message::default(); 300_000],
        ..PublishStreamRequest::default()
    };
    let mut refusals = Vec::new();
    for _ in 0..2 {
        let answers = client.publish_stream(tokio_stream::iter([request.clone()])).await;
        let refusal = match answers {
            Ok(answers) => answers.into_inner().message().await.unwrap_err(),
            Err(status) => status,
        };
        refusals.push(refusal.code());
    }
    assert_eq!(refusals, [Code::InvalidArgument; 2]);
    let grown = server.stat().rss_bytes().saturating_sub(before);
    assert!(grown < 25 << 20, "grew by {} MiB", grown >> 20);
}
