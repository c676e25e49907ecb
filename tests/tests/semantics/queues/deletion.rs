//! Queues that are deleted.

use std::time::Duration;

use boltq_proto::queue::v1::{
    ConsumeRequest, DeleteQueueRequest, GetQueueRequest, ListQueuesRequest, PublishStreamRequest, QueueSettings,
};
use boltq_proto::topic::v1::SubscribeRequest;
use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, duration, message};
use boltq_tests::harness::{Server, ServerOptions, eventually_async};
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
async fn a_backlog_is_not_deleted_under_its_subscription() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let mut topics = TopicServiceClient::new(channel(server.messaging()).await.unwrap());
    let request = SubscribeRequest {
        topic: "t".to_owned(),
        subscription: "s".to_owned(),
        durable: true,
        ..SubscribeRequest::default()
    };
    let _attached = topics.subscribe(request).await.unwrap();
    let status = assert_refused(
        delete(&mut client, "t:s", false).await,
        Code::FailedPrecondition,
        "QUEUE_IS_BACKLOG",
    );
    assert!(status.message().contains("DeleteSubscription"), "{status}");
}

/// Of many queues with a few messages each, all of which are acknowledged before the queues are deleted.
struct Round {
    queues: usize,
    messages: usize,
}

impl Round {
    async fn run(&self, client: &QueueClient, round: usize) {
        let work = (0..self.queues).map(|queue| {
            let mut client = client.clone();
            let (messages, name) = (self.messages, format!("{round}:{queue}"));
            async move {
                create(&mut client, &name, limited(messages as u64)).await.unwrap();
                let request = PublishStreamRequest {
                    queue: name.clone(),
                    messages: (0..messages).map(|_| message(vec![7; 1_024])).collect(),
                    ..PublishStreamRequest::default()
                };
                let mut answers = client
                    .publish_stream(tokio_stream::iter([request]))
                    .await
                    .unwrap()
                    .into_inner();
                assert!(answers.message().await.unwrap().unwrap().failures.is_empty());
                let taken = client.take(&name, 100).await;
                assert_eq!(client.done(&taken).await as usize, messages);
                assert_eq!(delete(&mut client, &name, true).await.unwrap(), 0);
            }
        });
        futures_util::stream::iter(work)
            .buffer_unordered(32)
            .collect::<Vec<()>>()
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_disk_come_back_when_many_queues_are_deleted() {
    const ROUND: Round = Round {
        queues: 500,
        messages: 10,
    };
    let mut server = Server::start(&ServerOptions::disk().set("storage.wal_file_bytes", 1 << 20));
    let client = connect(server.messaging()).await;
    // What is taken once and kept: buffers, caches.
    ROUND.run(&client, 0).await;
    let before = server.stat().rss_bytes();
    for round in 1..=3 {
        ROUND.run(&client, round).await;
    }
    let grown = server.stat().rss_bytes().saturating_sub(before);
    assert!(grown < 24 << 20, "{} KiB after 1,500 queues more", grown >> 10);
    server.terminate();
    server.restart();
    let mut client = connect(server.messaging()).await;
    let left = client
        .list_queues(ListQueuesRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert!(left.queues.is_empty(), "{left:?}");
    // 20 MiB of messages had been published.
    let bytes = server.directory().data_bytes();
    assert!(bytes < 10 << 20, "{} KiB on disk", bytes >> 10);
}
