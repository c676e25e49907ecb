//! Queues that are deleted.

use std::time::Duration;

use boltq_proto::queue::v1::{
    ConsumeRequest, DeleteQueueRequest, GetQueueRequest, ListQueuesRequest, PublishStreamRequest, QueueSettings,
};
use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use boltq_proto::topic::v1::{DeleteSubscriptionRequest, SubscribeRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, duration, message};
use boltq_tests::harness::{Server, ServerOptions, eventually, eventually_async};
use futures_util::StreamExt;
use tonic::{Code, Status};

use super::{assert_refused, create, limited, subscribe};

const LONG: Duration = Duration::from_secs(20);

async fn delete(client: &mut QueueClient, queue: &str, if_empty: bool) -> Result<u64, Status> {
    let request = DeleteQueueRequest {
        queue: queue.to_owned(),
        if_empty,
    };
    Ok(client.delete_queue(request).await?.into_inner().deleted_messages)
}

async fn get(client: &mut QueueClient, queue: &str) -> Result<(), Status> {
    let request = GetQueueRequest {
        queue: queue.to_owned(),
        ..GetQueueRequest::default()
    };
    client.get_queue(request).await.map(drop)
}

#[tokio::test]
async fn a_deleted_queue_is_gone_with_all_that_it_had() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", limited(3)).await.unwrap();
    let keyed = || Message {
        idempotency_key: "k".to_owned(),
        ..message("x")
    };
    let first = client.put("q", keyed()).await;
    let leased = client.take("q", 1).await;
    let delayed = Message {
        delay: duration(Duration::from_secs(3_600)),
        ..message("later")
    };
    client.put("q", delayed).await;
    client.put("q", message("ready")).await;
    let refused = delete(&mut client, "q", true).await;
    assert_refused(refused, Code::FailedPrecondition, "QUEUE_NOT_EMPTY");
    assert_eq!(delete(&mut client, "q", false).await.unwrap(), 3);
    assert_refused(delete(&mut client, "q", false).await, Code::NotFound, "QUEUE_NOT_FOUND");
    assert_refused(get(&mut client, "q").await, Code::NotFound, "QUEUE_NOT_FOUND");
    assert_eq!(client.done(&leased).await, 0);
    // The next one of this name begins anew.
    assert_ne!(client.put("q", keyed()).await, first);
    let queue = client.look("q").await;
    assert_eq!((queue.ready, queue.settings.unwrap()), (1, QueueSettings::default()));
    assert_eq!(client.done(&leased).await, 0);
    let taken = client.take("q", 9).await;
    assert_eq!(client.done(&taken).await, 1);
    assert_eq!(delete(&mut client, "q", true).await.unwrap(), 0);
}

#[tokio::test]
async fn who_waits_for_messages_of_a_deleted_queue_is_told() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let (_requests, mut answers) = subscribe(&mut client, "q", 9).await;
    let polling = tokio::spawn({
        let mut client = client.clone();
        async move {
            let request = ConsumeRequest {
                queue: "q".to_owned(),
                wait: duration(Duration::from_secs(60)),
                ..ConsumeRequest::default()
            };
            client.consume(request).await.map(drop)
        }
    });
    eventually_async(LONG, "both wait", || {
        let mut client = client.clone();
        async move { (client.look("q").await.consumers == 2).then_some(()) }
    })
    .await;
    delete(&mut client, "q", false).await.unwrap();
    assert_refused(polling.await.unwrap(), Code::NotFound, "QUEUE_DELETED");
    assert_refused(answers.message().await, Code::NotFound, "QUEUE_DELETED");
    assert_refused(get(&mut client, "q").await, Code::NotFound, "QUEUE_NOT_FOUND");
}

#[tokio::test]
async fn a_backlog_is_deleted_with_its_subscription_and_not_before() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let mut topics = TopicServiceClient::new(channel(server.messaging()).await.unwrap());
    let request = SubscribeRequest {
        topic: "t".to_owned(),
        subscription: "s".to_owned(),
        durable: true,
        ..SubscribeRequest::default()
    };
    let attached = topics.subscribe(request).await.unwrap();
    let status = assert_refused(
        delete(&mut client, "t:s", false).await,
        Code::FailedPrecondition,
        "QUEUE_IS_BACKLOG",
    );
    assert!(status.message().contains("DeleteSubscription"), "{status}");
    let request = DeleteSubscriptionRequest {
        topic: "t".to_owned(),
        subscription: "s".to_owned(),
    };
    topics.delete_subscription(request).await.unwrap();
    let ended = attached.into_inner().message().await;
    assert_refused(ended, Code::Aborted, "SUBSCRIPTION_REPLACED");
    assert_refused(get(&mut client, "t:s").await, Code::NotFound, "QUEUE_NOT_FOUND");
}

/// Queues with ten messages of 16 KiB each. Every other one is deleted with its messages, the rest when they were
/// acknowledged.
async fn pass_through(client: &QueueClient, queues: std::ops::Range<usize>) {
    const MESSAGES: usize = 10;
    let work = queues.map(|number| {
        let (mut client, name) = (client.clone(), format!("temporary {number}"));
        async move {
            create(&mut client, &name, limited(MESSAGES as u64)).await.unwrap();
            let request = PublishStreamRequest {
                queue: name.clone(),
                messages: vec![message(vec![7; 16 << 10]); MESSAGES],
                ..PublishStreamRequest::default()
            };
            let answers = client.publish_stream(tokio_stream::iter([request])).await;
            let answer = answers.unwrap().into_inner().message().await.unwrap().unwrap();
            assert!(answer.failures.is_empty(), "{answer:?}");
            if number % 2 == 0 {
                assert_eq!(delete(&mut client, &name, false).await.unwrap(), MESSAGES as u64);
                return;
            }
            let taken = client.take(&name, 100).await;
            assert_eq!(client.done(&taken).await as usize, MESSAGES);
            assert_eq!(delete(&mut client, &name, true).await.unwrap(), 0);
        }
    });
    let mut working = futures_util::stream::iter(work).buffer_unordered(32);
    while working.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_disk_come_back_when_many_queues_are_deleted() {
    const QUEUES: usize = 300;
    let mut server = Server::start(&ServerOptions::disk());
    let client = connect(server.messaging()).await;
    // What is taken once and kept: buffers, caches.
    pass_through(&client, 0..QUEUES).await;
    let before = server.stat().rss_bytes();
    pass_through(&client, QUEUES..4 * QUEUES).await;
    let grown = server.stat().rss_bytes().saturating_sub(before);
    assert!(
        grown < 32 << 20,
        "{} KiB more after {} queues more",
        grown >> 10,
        3 * QUEUES
    );
    server.terminate();
    server.restart();
    let mut client = connect(server.messaging()).await;
    let left = client
        .list_queues(ListQueuesRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert!(left.queues.is_empty(), "{left:?}");
    // 190 MiB of messages had been published.
    eventually(LONG, "files are given up", || {
        (server.directory().data_bytes() < 100 << 20).then_some(())
    });
}
