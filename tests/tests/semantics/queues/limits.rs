//! Queues that hold only so much.

use std::collections::BTreeSet;

use boltq_proto::admin::v1::GetStatsRequest;
use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;
use boltq_proto::exchange::v1::exchange_service_client::ExchangeServiceClient;
use boltq_proto::exchange::v1::{BindRequest, Binding, DeclareRequest, ExchangeType, PublishRequest as ToExchange};
use boltq_proto::queue::v1::{OverflowPolicy, PublishStreamRequest, QueueSettings};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, message};
use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::json;
use tokio_stream::StreamExt;
use tonic::Code;

use super::{assert_refused, create, limited, try_put, update};

fn dropping(max_length: u64) -> QueueSettings {
    QueueSettings {
        overflow: OverflowPolicy::DropOldest.into(),
        ..limited(max_length)
    }
}

#[tokio::test]
async fn a_full_queue_refuses_messages_until_one_is_done() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", limited(2)).await.unwrap();
    for text in ["1", "2"] {
        client.put("q", message(text)).await;
    }
    let status = assert_refused(
        try_put(&mut client, "q", message("3")).await,
        Code::ResourceExhausted,
        "QUEUE_FULL",
    );
    assert!(status.message().contains("\"q\" is full (max_length is 2)"), "{status}");
    let mut binary = BinaryClient::connect(server.messaging());
    let refused = binary.call(0x01, &json!({"topic": "q", "payload": 3}).to_string());
    assert!(refused.error().contains("\"q\" is full"), "{}", refused.error());
    let taken = client.take("q", 1).await;
    assert_refused(
        try_put(&mut client, "q", message("3")).await,
        Code::ResourceExhausted,
        "QUEUE_FULL",
    );
    assert_eq!(client.done(&taken).await, 1);
    client.put("q", message("3")).await;
    update(&mut client, "q", QueueSettings::default(), &["max_length"])
        .await
        .unwrap();
    client.put("q", message("4")).await;
    assert_eq!(client.look("q").await.ready, 3);
}

#[tokio::test]
async fn of_a_batch_the_first_messages_are_stored_and_each_says_what_became_of_it() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", limited(5)).await.unwrap();
    let request = |queue: &str, count: u8, broken: Option<usize>| {
        let mut messages: Vec<Message> = (0..count).map(|n| message(vec![n])).collect();
        if let Some(broken) = broken {
            messages[broken].content_type = "application/json".to_owned();
        }
        PublishStreamRequest {
            queue: queue.to_owned(),
            messages,
            ..PublishStreamRequest::default()
        }
    };
    let requests = [
        request("q", 3, None),
        request("other", 2, None),
        request("q", 4, Some(1)),
        request("q", 1, None),
    ];
    let answers = client
        .publish_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let answers: Vec<_> = answers.map(Result::unwrap).collect().await;
    let failed: Vec<Vec<(u32, &str)>> = answers
        .iter()
        .map(|answer| {
            let failures = answer.failures.iter();
            failures
                .map(|failure| (failure.index, failure.reason.as_str()))
                .collect()
        })
        .collect();
    let third = vec![(1, "INVALID_ARGUMENT"), (3, "QUEUE_FULL")];
    assert_eq!(failed, [vec![], vec![], third, vec![(0, "QUEUE_FULL")]]);
    for answer in &answers {
        for (index, id) in answer.message_ids.iter().enumerate() {
            let refused = answer.failures.iter().any(|failure| failure.index as usize == index);
            assert_eq!(id.is_empty(), refused);
        }
    }
    assert!(answers[3].failures[0].retriable);
    let payloads: Vec<u8> = client
        .take("q", 9)
        .await
        .iter()
        .map(|delivery| delivery.payload[0])
        .collect();
    assert_eq!(payloads, [0, 1, 2, 0, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_at_the_same_time_get_no_more_than_there_is_room_for() {
    const LENGTH: usize = 100;
    let server = Server::start(&ServerOptions::disk());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", limited(LENGTH as u64)).await.unwrap();
    let publishers = (0..16).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let mut ids = Vec::new();
            for n in 0..20u8 {
                match try_put(&mut client, "q", message(vec![n])).await {
                    Ok(id) => ids.push(id),
                    Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
                }
            }
            ids
        })
    });
    let publishers: Vec<_> = publishers.collect();
    let mut ids = BTreeSet::new();
    for publisher in publishers {
        ids.extend(publisher.await.unwrap());
    }
    assert_eq!(ids.len(), LENGTH);
    let taken = client.take("q", 1_000).await;
    let stored: BTreeSet<_> = taken.into_iter().map(|delivery| delivery.message_id).collect();
    assert_eq!(stored, ids);
}

#[tokio::test]
async fn the_oldest_messages_make_room_and_are_counted() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", dropping(3)).await.unwrap();
    let important = Message {
        priority: 9,
        ..message("important")
    };
    client.put("q", important).await;
    client.put("q", message("1")).await;
    let leased = client.take("q", 2).await;
    for n in 2..=6 {
        client.put("q", message(n.to_string())).await;
    }
    // The lower one is gone, although it was leased.
    assert_eq!(client.done(&leased).await, 1);
    let left: Vec<_> = client
        .take("q", 9)
        .await
        .into_iter()
        .map(|delivery| delivery.payload)
        .collect();
    assert_eq!(left, ["5", "6"]);
    let mut admin = AdminServiceClient::new(channel(server.messaging()).await.unwrap());
    let stats = admin.get_stats(GetStatsRequest::default()).await.unwrap().into_inner();
    assert_eq!((stats.published, stats.dropped, stats.rejected), (7, 4, 0));
    let metrics = http::get(server.admin(), "/metrics").unwrap();
    assert!(
        metrics.text().contains("\nboltq_messages_dropped 4\n"),
        "{}",
        metrics.text()
    );
}

#[tokio::test]
async fn bytes_are_limited_too() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let settings = QueueSettings {
        max_length_bytes: Some(10_000),
        ..QueueSettings::default()
    };
    create(&mut client, "q", settings).await.unwrap();
    for _ in 0..4 {
        client.put("q", message(vec![7; 2_400])).await;
    }
    let refused = try_put(&mut client, "q", message(vec![7; 2_400])).await;
    let status = assert_refused(refused, Code::ResourceExhausted, "QUEUE_FULL");
    assert!(status.message().contains("max_length_bytes is 10000"), "{status}");
    let taken = client.take("q", 2).await;
    assert_eq!(client.done(&taken).await, 2);
    client.put("q", message(vec![7; 4_800])).await;
}

fn of_bytes(max: u64, overflow: OverflowPolicy) -> QueueSettings {
    QueueSettings {
        max_length_bytes: Some(max),
        overflow: overflow.into(),
        ..QueueSettings::default()
    }
}

/// Messages of these sizes, published with one request.
async fn publish_sizes(server: &Server, queue: &str, sizes: &[usize]) {
    let mut client = connect(server.messaging()).await;
    let request = PublishStreamRequest {
        queue: queue.to_owned(),
        messages: sizes.iter().map(|bytes| message(vec![7; *bytes])).collect(),
        ..PublishStreamRequest::default()
    };
    let answers = client.publish_stream(tokio_stream::iter([request])).await.unwrap();
    let answers: Vec<_> = answers.into_inner().collect().await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test]
async fn a_message_that_fits_into_no_empty_queue_throws_nothing_out_of_a_full_one() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", of_bytes(2_000, OverflowPolicy::DropOldest))
        .await
        .unwrap();
    for _ in 0..5 {
        client.put("q", message("small")).await;
    }
    let refused = try_put(&mut client, "q", message(vec![7; 5_000])).await;
    let status = assert_refused(refused, Code::ResourceExhausted, "QUEUE_FULL");
    assert!(status.message().contains("a larger message never fits"), "{status}");
    assert_eq!(client.look("q").await.ready, 5);
}

#[tokio::test]
async fn messages_of_other_sizes_that_came_together_are_counted_as_large_as_they_are() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", of_bytes(100_000, OverflowPolicy::Reject))
        .await
        .unwrap();
    let sizes: Vec<_> = std::iter::once(90_000).chain([10; 100]).collect();
    publish_sizes(&server, "q", &sizes).await;
    let refused = try_put(&mut client, "q", message(vec![7; 50_000])).await;
    assert_refused(refused, Code::ResourceExhausted, "QUEUE_FULL");
    let taken = client.take("q", 1).await;
    assert_eq!(taken[0].payload.len(), 90_000);
    assert_eq!(client.done(&taken).await, 1);
    client.put("q", message(vec![7; 50_000])).await;
}

#[tokio::test]
async fn what_is_too_much_goes_by_its_size_and_not_by_that_of_others() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", of_bytes(100_000, OverflowPolicy::DropOldest))
        .await
        .unwrap();
    for _ in 0..9 {
        let urgent = Message {
            priority: 9,
            ..message(vec![7; 10_000])
        };
        client.put("q", urgent).await;
    }
    // Of the lowest priority, it is what goes, alone.
    client.put("q", message(vec![7; 20_000])).await;
    assert_eq!(client.look("q").await.ready, 9);
}

#[tokio::test]
async fn copies_for_full_queues_are_refused_and_a_message_that_nobody_takes_as_a_whole() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let mut exchanges = ExchangeServiceClient::new(channel(server.messaging()).await.unwrap());
    let declare = DeclareRequest {
        name: "all".to_owned(),
        r#type: ExchangeType::Fanout.into(),
        ..DeclareRequest::default()
    };
    exchanges.declare(declare).await.unwrap();
    for (queue, length) in [("small", 1), ("large", 2)] {
        create(&mut client, queue, limited(length)).await.unwrap();
        let binding = Binding {
            queue: queue.to_owned(),
            ..Binding::default()
        };
        let request = BindRequest {
            exchange: "all".to_owned(),
            binding: Some(binding),
        };
        exchanges.bind(request).await.unwrap();
    }
    let publish = |exchange: &str, routing_key: &str| ToExchange {
        exchange: exchange.to_owned(),
        routing_key: routing_key.to_owned(),
        message: Some(message("x")),
    };
    for routed in [2, 1] {
        let published = exchanges.publish(publish("all", "")).await.unwrap().into_inner();
        assert_eq!(published.routed, routed);
    }
    for (exchange, key) in [("all", ""), ("", "small")] {
        let refused = exchanges.publish(publish(exchange, key)).await;
        assert_refused(refused, Code::ResourceExhausted, "QUEUE_FULL");
    }
    assert_eq!(
        (client.look("small").await.ready, client.look("large").await.ready),
        (1, 2)
    );
}
