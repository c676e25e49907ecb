//! Topics over gRPC.

use std::time::Duration;

use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use boltq_proto::topic::v1::{
    DeleteSubscriptionRequest, ListSubscriptionsRequest, ListTopicsRequest, PublishRequest, PublishStreamRequest,
    SubscribeRequest, SubscribeResponse, TopicMessage,
};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, duration, message, reason};
use boltq_tests::harness::{Server, ServerOptions, eventually_async, within};
use bytes::Bytes;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::topics::PATIENCE;

pub(crate) type TopicClient = TopicServiceClient<Channel>;

pub(crate) fn subscription(topic: &str, id: &str, durable: bool) -> SubscribeRequest {
    SubscribeRequest {
        topic: topic.to_owned(),
        subscription: id.to_owned(),
        durable,
        max_in_flight: 0,
    }
}

pub(crate) fn publish(topic: &str, payload: impl Into<Bytes>) -> PublishRequest {
    PublishRequest {
        topic: topic.to_owned(),
        message: Some(message(payload)),
    }
}

/// The next messages of a stream, `count` at least.
pub(crate) async fn next(stream: &mut Streaming<SubscribeResponse>, count: usize) -> Vec<TopicMessage> {
    let mut messages = Vec::new();
    while messages.len() < count {
        let response = within(PATIENCE, "a message", stream.message()).await.unwrap();
        messages.extend(response.expect("the stream goes on").messages);
    }
    messages
}

async fn end(stream: &mut Streaming<SubscribeResponse>) -> Status {
    within(PATIENCE, "the end", async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("an end without a status"),
                Err(status) => return status,
            }
        }
    })
    .await
}

async fn started() -> (Server, TopicClient) {
    let server = Server::start(&ServerOptions::memory());
    let client = TopicServiceClient::new(channel(server.messaging()).await.unwrap());
    (server, client)
}

#[tokio::test]
async fn live_and_durable_streams_get_everything_in_order() {
    let (server, mut client) = started().await;
    let mut live = client
        .subscribe(subscription("t", "", false))
        .await
        .unwrap()
        .into_inner();
    let mut durable = client
        .subscribe(subscription("t", "s", true))
        .await
        .unwrap()
        .into_inner();
    let published = client.publish(publish("t", "0")).await.unwrap().into_inner();
    assert_eq!(published.durable_subscriptions, 1);
    for n in 1..50 {
        client.publish(publish("t", n.to_string())).await.unwrap();
    }
    for stream in [&mut live, &mut durable] {
        let messages = next(stream, 50).await;
        assert_eq!(messages[0].message_id, published.message_id);
        let payloads: Vec<_> = messages
            .iter()
            .map(|message| String::from_utf8(message.payload.to_vec()).unwrap())
            .collect();
        assert_eq!(payloads, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
    }
    let queues = connect(server.messaging()).await;
    // The last batch counts as delivered when the next one is asked for, which the transport does at once.
    eventually_async(PATIENCE, "what was handed over is done", || {
        let mut queues = queues.clone();
        async move {
            let queue = queues.look("t:s").await;
            (queue.ready + queue.leased == 0).then_some(())
        }
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_is_replaced_or_deleted_is_told() {
    let (_server, mut client) = started().await;
    let mut old = client
        .subscribe(subscription("t", "s", true))
        .await
        .unwrap()
        .into_inner();
    let mut new = client
        .subscribe(subscription("t", "s", true))
        .await
        .unwrap()
        .into_inner();
    let replaced = end(&mut old).await;
    assert_eq!(
        (replaced.code(), reason(&replaced).as_str()),
        (Code::Aborted, "SUBSCRIPTION_REPLACED")
    );
    client.publish(publish("t", "x")).await.unwrap();
    assert_eq!(next(&mut new, 1).await[0].payload, "x");
    let delete = DeleteSubscriptionRequest {
        topic: "t".to_owned(),
        subscription: "s".to_owned(),
    };
    client.delete_subscription(delete.clone()).await.unwrap();
    assert_eq!(end(&mut new).await.code(), Code::Aborted);
    let missing = client.delete_subscription(delete).await.unwrap_err();
    assert_eq!(
        (missing.code(), reason(&missing).as_str()),
        (Code::NotFound, "SUBSCRIPTION_NOT_FOUND")
    );
    assert_eq!(
        client
            .publish(publish("t", "y"))
            .await
            .unwrap()
            .into_inner()
            .durable_subscriptions,
        0
    );
}

/// Weakness B8.
#[tokio::test]
async fn who_does_not_keep_up_is_told_how_many_were_dropped() {
    let (_server, mut client) = started().await;
    let small = SubscribeRequest {
        max_in_flight: 2,
        ..subscription("t", "", false)
    };
    let mut slow = client.subscribe(small).await.unwrap().into_inner();
    // More than windows hold.
    let large = vec![0; 1 << 20];
    for _ in 0..64 {
        client.publish(publish("t", large.clone())).await.unwrap();
    }
    let (mut got, mut dropped) = (0, 0);
    let mut read = async |slow: &mut Streaming<SubscribeResponse>| {
        let response = within(PATIENCE, "a message", slow.message()).await.unwrap().unwrap();
        dropped += response.dropped;
        got += response.messages.len() as u64;
        got + dropped
    };
    // What was dropped last is told with what comes next.
    let mut more = client.clone();
    while read(&mut slow).await < 64 {
        more.publish(publish("t", "more")).await.unwrap();
    }
    assert!(dropped > 0, "{got} of 64");
}

#[tokio::test]
async fn topics_and_subscriptions_are_listed() {
    let (_server, mut client) = started().await;
    let _live = client.subscribe(subscription("a", "", false)).await.unwrap();
    let durable = client.subscribe(subscription("b", "s", true)).await.unwrap();
    drop(durable);
    client.subscribe(subscription("b", "r", true)).await.unwrap();
    let list = ListTopicsRequest::default();
    eventually_async(PATIENCE, "two have gone", || {
        let (mut client, list) = (client.clone(), list.clone());
        async move {
            let topics = client.list_topics(list).await.unwrap().into_inner().topics;
            let shown: Vec<_> = topics
                .into_iter()
                .map(|topic| (topic.name, topic.durable_subscriptions, topic.subscribers))
                .collect();
            (shown == [("a".to_owned(), 0, 1), ("b".to_owned(), 2, 0)]).then_some(())
        }
    })
    .await;
    client.publish(publish("b", "x")).await.unwrap();
    let list = ListSubscriptionsRequest {
        topic: "b".to_owned(),
        page_size: 1,
        ..ListSubscriptionsRequest::default()
    };
    let page = client.list_subscriptions(list.clone()).await.unwrap().into_inner();
    assert_eq!((page.subscriptions.len(), page.next_page_token.as_str()), (1, "r"));
    let rest = ListSubscriptionsRequest {
        page_token: page.next_page_token,
        ..list
    };
    let page = client.list_subscriptions(rest).await.unwrap().into_inner();
    let only = &page.subscriptions[0];
    assert_eq!(
        (only.subscription.as_str(), only.queue.as_str(), only.backlog),
        ("s", "b:s", 1)
    );
    assert!(only.last_attached_at.is_some() && page.next_page_token.is_empty());
}

#[tokio::test]
async fn batches_are_answered_in_order_with_what_was_refused() {
    let (_server, mut client) = started().await;
    let mut live = client
        .subscribe(subscription("t", "", false))
        .await
        .unwrap()
        .into_inner();
    let mut delayed = message("late");
    delayed.delay = duration(Duration::from_secs(1));
    let batch = |topic: &str, first: &str| PublishStreamRequest {
        topic: topic.to_owned(),
        messages: vec![message(first.to_owned()), delayed.clone(), message("last")],
    };
    let requests = vec![batch("t", "1"), batch("", "2"), batch("", "3")];
    let mut answers = client
        .publish_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    for number in 1..=3 {
        let answer = within(PATIENCE, "an answer", answers.message()).await.unwrap().unwrap();
        assert_eq!(answer.batch, number);
        assert_eq!(
            answer.message_ids.iter().map(Bytes::len).collect::<Vec<_>>(),
            [16, 0, 16]
        );
        assert_eq!((answer.failures.len(), answer.failures[0].index), (1, 1));
        assert_eq!(answer.failures[0].reason, "INVALID_ARGUMENT");
    }
    assert!(answers.message().await.unwrap().is_none());
    let got: Vec<_> = next(&mut live, 6)
        .await
        .into_iter()
        .map(|message| message.payload)
        .collect();
    assert_eq!(got, ["1", "last", "2", "last", "3", "last"]);
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let (_server, mut client) = started().await;
    for request in [
        subscription("", "s", false),
        subscription("t", "", true),
        subscription("t", &"s".repeat(199), true),
        SubscribeRequest {
            max_in_flight: 100_001,
            ..subscription("t", "s", false)
        },
    ] {
        let refused = client.subscribe(request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{request:?}");
    }
    let mut delayed = publish("t", "x");
    delayed.message.as_mut().unwrap().delay = duration(Duration::from_secs(1));
    assert_eq!(client.publish(delayed).await.unwrap_err().code(), Code::InvalidArgument);
}
