//! Settings of queues, and queues that were deleted, over a failover.

use boltq_proto::queue::v1::{
    CreateQueueRequest, DeleteQueueRequest, GetQueueRequest, OverflowPolicy, PublishRequest, QueueSettings,
    UpdateQueueRequest,
};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message, reason};
use boltq_tests::harness::{Cluster, ServerOptions, eventually_async};
use prost_types::FieldMask;
use std::time::Duration;
use tonic::{Code, Status};

const LONG: Duration = Duration::from_secs(30);

fn settings() -> QueueSettings {
    QueueSettings {
        max_retry: Some(1),
        max_length: Some(3),
        dead_letter_queue: "morgue".to_owned(),
        ..QueueSettings::default()
    }
}

async fn create(client: &mut QueueClient, queue: &str, settings: QueueSettings) {
    let request = CreateQueueRequest {
        queue: queue.to_owned(),
        settings: Some(settings),
    };
    assert!(client.create_queue(request).await.unwrap().into_inner().created);
}

async fn pause(client: &mut QueueClient, queue: &str, paused: bool) {
    let settings = QueueSettings {
        paused,
        ..QueueSettings::default()
    };
    let request = UpdateQueueRequest {
        queue: queue.to_owned(),
        settings: Some(settings),
        update_mask: Some(FieldMask {
            paths: vec!["paused".to_owned()],
        }),
    };
    client.update_queue(request).await.unwrap();
}

async fn put(client: &mut QueueClient, queue: &str, text: &str) -> Result<(), Status> {
    let request = PublishRequest {
        queue: queue.to_owned(),
        message: Some(message(text.to_owned())),
    };
    client.publish(request).await.map(drop)
}

/// What the node has, once it leads or follows again.
async fn get(client: &QueueClient, queue: &str) -> Result<QueueSettings, Status> {
    let request = GetQueueRequest {
        queue: queue.to_owned(),
        linearizable: true,
    };
    eventually_async(LONG, "an answer that is current", || {
        let (mut client, request) = (client.clone(), request.clone());
        async move {
            let answer = client.get_queue(request).await;
            let unavailable = answer.as_ref().is_err_and(|status| status.code() == Code::Unavailable);
            (!unavailable).then_some(answer)
        }
    })
    .await
    .map(|answer| answer.into_inner().queue.unwrap().settings.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_has_the_settings_and_keeps_to_them() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::disk());
    let leader = cluster.leader();
    // Any node takes the calls.
    let mut client = connect(cluster.node(cluster.follower()).messaging()).await;
    create(&mut client, "limited", settings()).await;
    let dropping = QueueSettings {
        max_length: Some(2),
        overflow: OverflowPolicy::DropOldest.into(),
        ..QueueSettings::default()
    };
    create(&mut client, "dropping", dropping).await;
    pause(&mut client, "limited", true).await;
    for text in ["1", "2", "3"] {
        put(&mut client, "limited", text).await.unwrap();
        put(&mut client, "dropping", text).await.unwrap();
        put(&mut client, "deleted", text).await.unwrap();
    }
    let request = DeleteQueueRequest {
        queue: "deleted".to_owned(),
        if_empty: false,
    };
    assert_eq!(
        client
            .delete_queue(request)
            .await
            .unwrap()
            .into_inner()
            .deleted_messages,
        3
    );
    cluster.kill(leader);
    let next = cluster.leader();
    for index in [next, cluster.follower()] {
        let client = connect(cluster.node(index).messaging()).await;
        let paused = QueueSettings {
            paused: true,
            ..settings()
        };
        assert_eq!(get(&client, "limited").await.unwrap(), paused);
        assert_eq!(get(&client, "deleted").await.unwrap_err().code(), Code::NotFound);
    }
    let mut client = connect(cluster.node(next).messaging()).await;
    let full = put(&mut client, "limited", "4").await.unwrap_err();
    assert_eq!(
        (full.code(), reason(&full).as_str()),
        (Code::ResourceExhausted, "QUEUE_FULL")
    );
    assert!(client.take("limited", 9).await.is_empty());
    pause(&mut client, "limited", false).await;
    assert_eq!(client.take("limited", 9).await.len(), 3);
    let left: Vec<_> = client
        .take("dropping", 9)
        .await
        .into_iter()
        .map(|delivery| delivery.payload)
        .collect();
    assert_eq!(left, ["2", "3"]);
    // The one that was away has it from the log or a snapshot.
    cluster.start_node(leader);
    cluster.await_settled();
    let client = connect(cluster.node(leader).messaging()).await;
    assert_eq!(get(&client, "limited").await.unwrap(), settings());
    assert_eq!(get(&client, "deleted").await.unwrap_err().code(), Code::NotFound);
}
