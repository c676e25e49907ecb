//! Clients that ask for messages and read no answer: what waits for them takes bounded memory, and honest ones go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use boltq_proto::queue::v1::subscribe_request::Request as Kind;
use boltq_proto::queue::v1::{ConsumeRequest, SubscribeInit, SubscribeRequest, SubscribeResponse};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, message};
use boltq_tests::harness::{Server, ServerOptions, eventually_async, within};
use bytes::{BufMut, BytesMut};
use futures_util::{StreamExt, future};
use prost::Message as _;
use tokio::sync::Mutex;
use tonic::Streaming;
use tonic::transport::Channel;
use tower_service::Service;

use super::watch::Watched;

const MIB: u64 = 1 << 20;
/// Answers may hold so much.
const BUDGET_BYTES: u64 = 64 * MIB;
/// The same of one connection.
const CONNECTION_BYTES: u64 = 16 * MIB;
/// Encoded answers lie in buffers that grow by doubling, and so do copies that are under way. The rest is of the allocator, of
/// windows, and of what a stream has in its connection beside its budget.
const RESIDENT_BYTES_MAX: u64 = 2 * BUDGET_BYTES + 128 * MIB;
const CLIENTS: usize = 50;
const MESSAGES: usize = 400;
const DEADLINE: Duration = Duration::from_secs(60);

fn options() -> ServerOptions {
    ServerOptions::disk()
        .set("storage.sync", "never")
        .set("queue.ack_timeout", "1h")
        .set("server.max_request_bytes", BUDGET_BYTES)
        .set("server.max_request_bytes_per_connection", CONNECTION_BYTES)
        .set("server.idle_write_timeout", "2s")
}

/// One of these tests at a time: each moves hundreds of megabytes, and allocators of busy machines are slow to give back what
/// other tests measure.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A server with more messages than it may hold. Nearly all of them were in its memory, before.
async fn filled() -> Watched {
    let watched = Watched::new(Server::start(&options()));
    let mut client = connect(watched.messaging()).await;
    for _ in 0..MESSAGES {
        client.put("large", message(vec![7; MIB as usize])).await;
    }
    for _ in 0..8 {
        client.put("honest", message(vec![7; MIB as usize])).await;
    }
    watched
}

/// A subscription whose responses nobody asks for.
async fn unread(channel: Channel) -> Streaming<SubscribeResponse> {
    let init = SubscribeInit {
        queue: "large".to_owned(),
        max_in_flight: 1_000,
        ..Default::default()
    };
    let init = SubscribeRequest {
        request: Some(Kind::Init(init)),
    };
    let requests = tokio_stream::iter([init]).chain(tokio_stream::pending());
    let mut client = boltq_proto::queue::v1::queue_service_client::QueueServiceClient::new(channel);
    let opened = within(DEADLINE, "a subscription", client.subscribe(requests)).await;
    opened.expect("a subscription").into_inner()
}

/// A call whose answer nobody reads.
async fn unread_call(mut channel: Channel) -> http::Response<tonic::body::Body> {
    let request = ConsumeRequest {
        queue: "large".to_owned(),
        max_messages: 3,
        ..Default::default()
    };
    let mut body = BytesMut::new();
    body.put_u8(0);
    body.put_u32(u32::try_from(request.encoded_len()).unwrap());
    request.encode(&mut body).unwrap();
    let request = http::Request::post("/boltq.queue.v1.QueueService/Consume")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(http_body_util::Full::new(body.freeze())))
        .unwrap();
    future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    channel.call(request).await.unwrap()
}

/// Watches the memory for some seconds, in which much more could be read.
async fn assert_bounded(watched: &Watched, what: &str) {
    let mut most = 0;
    for _ in 0..40 {
        most = most.max(watched.growth_bytes());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{what}: {} MiB at most", most / MIB);
    assert!(most < RESIDENT_BYTES_MAX, "{what}: {} MiB", most / MIB);
}

/// Who reads gets everything, and those who do not read are closed for it if need be.
async fn assert_honest_clients_are_served(watched: &Watched) {
    let mut honest = connect(watched.messaging()).await;
    for _ in 0..8 {
        let taken = within(DEADLINE, "a message", honest.take("honest", 1)).await;
        assert_eq!(taken.len(), 1);
        assert_eq!(honest.done(&taken).await, 1);
    }
}

#[tokio::test]
async fn subscriptions_of_one_connection_share_what_it_may_hold() {
    let _alone = ALONE.lock().await;
    let watched = filled().await;
    let channel = channel(watched.messaging()).await.unwrap();
    let streams = future::join_all((0..CLIENTS).map(|_| unread(channel.clone()))).await;
    assert_bounded(&watched, "50 subscriptions of one connection").await;
    assert_honest_clients_are_served(&watched).await;
    // It harms nobody, and so it may pause; when it reads, it gets everything.
    let read = Arc::new(AtomicUsize::new(0));
    for mut stream in streams {
        let read = read.clone();
        tokio::spawn(async move {
            while let Ok(Some(response)) = stream.message().await {
                read.fetch_add(response.deliveries.len(), Ordering::Relaxed);
            }
        });
    }
    eventually_async(DEADLINE, "all messages", async || {
        (read.load(Ordering::Relaxed) == MESSAGES).then_some(())
    })
    .await;
}

#[tokio::test]
async fn subscriptions_of_many_connections_share_what_the_node_may_hold() {
    let _alone = ALONE.lock().await;
    let watched = filled().await;
    let mut streams = Vec::new();
    for _ in 0..CLIENTS {
        let channel = channel(watched.messaging()).await.unwrap();
        streams.push(tokio::spawn(unread(channel)));
    }
    assert_bounded(&watched, "50 subscriptions of 50 connections").await;
    assert_honest_clients_are_served(&watched).await;
    drop(streams);
}

#[tokio::test]
async fn calls_whose_answers_nobody_reads_share_it_too() {
    let _alone = ALONE.lock().await;
    let watched = filled().await;
    let mut calls = Vec::new();
    for _ in 0..CLIENTS {
        let channel = channel(watched.messaging()).await.unwrap();
        calls.extend((0..2).map(|_| tokio::spawn(unread_call(channel.clone()))));
    }
    assert_bounded(&watched, "100 calls of 50 connections").await;
    assert_honest_clients_are_served(&watched).await;
    drop(calls);
}
