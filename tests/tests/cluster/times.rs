//! Delays and times to live when the leader is killed: both hold, and what is not due can be changed at any node.

use std::time::{Duration, Instant, SystemTime};

use boltq_proto::queue::v1::reschedule_request::Due;
use boltq_proto::queue::v1::{
    AckRequest, CancelScheduledRequest, ConsumeRequest, Delivery, GetQueueRequest, ListScheduledRequest,
    PublishRequest, Queue, RescheduleRequest,
};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueClient, connect, duration, message};
use boltq_tests::harness::{Cluster, ServerOptions, eventually_async};
use bytes::Bytes;
use tonic::{Code, Response, Status};

const HOUR: Duration = Duration::from_secs(3600);
const DEADLINE: Duration = Duration::from_secs(60);

async fn client(cluster: &Cluster, index: usize) -> QueueClient {
    connect(cluster.node(index).messaging()).await
}

/// As somebody does who does not give up: while nobody is known to lead, it is tried again.
async fn ask<T, F: Future<Output = Result<Response<T>, Status>>>(mut call: impl FnMut() -> F) -> T {
    let answer = eventually_async(DEADLINE, "somebody leads and answers", || {
        let call = call();
        async move {
            match call.await {
                Ok(answer) => Some(answer.into_inner()),
                Err(status) if status.code() == Code::Unavailable => None,
                Err(status) => panic!("{status}"),
            }
        }
    });
    answer.await
}

/// The key makes one message of a publish that is tried again.
async fn put(client: &QueueClient, key: &str, delay: Duration, ttl: Duration) -> Bytes {
    let message = Message {
        delay: duration(delay).filter(|_| !delay.is_zero()),
        ttl: duration(ttl).filter(|_| !ttl.is_zero()),
        idempotency_key: key.to_owned(),
        ..message("x")
    };
    let answer = ask(|| {
        let (mut client, message) = (client.clone(), message.clone());
        let request = PublishRequest {
            queue: "q".to_owned(),
            message: Some(message),
        };
        async move { client.publish(request).await }
    });
    answer.await.message_id
}

async fn listed(client: &QueueClient) -> Vec<Bytes> {
    let answer = ask(|| {
        let mut client = client.clone();
        let request = ListScheduledRequest {
            queue: "q".to_owned(),
            ..ListScheduledRequest::default()
        };
        async move { client.list_scheduled(request).await }
    });
    let messages = answer.await.messages.into_iter();
    messages.map(|message| message.message_id).collect()
}

async fn look(client: &mut QueueClient) -> Option<Queue> {
    let request = GetQueueRequest {
        queue: "q".to_owned(),
        ..GetQueueRequest::default()
    };
    client.get_queue(request).await.ok()?.into_inner().queue
}

/// The two messages, once they are all that is left. Leases end with a leader, so it can be tried again.
async fn take_both(mut client: QueueClient) -> Option<Vec<Delivery>> {
    let queue = look(&mut client).await?;
    if (queue.ready, queue.leased, queue.delayed) != (2, 0, 0) {
        return None;
    }
    let request = ConsumeRequest {
        queue: "q".to_owned(),
        max_messages: 10,
        ..ConsumeRequest::default()
    };
    Some(client.consume(request).await.ok()?.into_inner().deliveries)
}

#[tokio::test(flavor = "multi_thread")]
async fn delays_and_times_to_live_hold_over_a_killed_leader() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::disk());
    let leader = cluster.leader();
    let follower = client(&cluster, cluster.follower()).await;
    let published = Instant::now();
    let lives = put(&follower, "lives", Duration::ZERO, Duration::ZERO).await;
    for number in 0..10 {
        let ttl = Duration::from_secs(3);
        put(&follower, &format!("ready {number}"), Duration::ZERO, ttl).await;
        put(&follower, &format!("delayed {number}"), HOUR, ttl).await;
    }
    let soon = put(&follower, "soon", Duration::from_secs(4), Duration::ZERO).await;
    cluster.kill(leader);
    let next = client(&cluster, cluster.leader()).await;
    // Not early, and the others are gone without anybody taking them.
    let taken = eventually_async(DEADLINE, "what lives", || take_both(next.clone())).await;
    assert!(published.elapsed() >= Duration::from_secs(4));
    let ids: Vec<_> = taken.iter().map(|delivery| delivery.message_id.clone()).collect();
    assert_eq!(ids, [soon, lives]);
    let due = SystemTime::try_from(taken[0].deliver_at.unwrap()).unwrap();
    assert!(SystemTime::now() >= due);
    let settled = ask(|| {
        let mut client = next.clone();
        let request = AckRequest {
            delivery_tokens: taken.iter().map(|taken| taken.delivery_token.clone()).collect(),
            ..AckRequest::default()
        };
        async move { client.ack(request).await }
    });
    settled.await;
    eventually_async(DEADLINE, "nothing is left", || {
        let mut client = next.clone();
        async move {
            let queue = look(&mut client).await?;
            (queue.ready + queue.leased + queue.delayed == 0).then_some(())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_due_is_listed_and_changed_through_every_node_and_stays_so() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::disk());
    let leader = cluster.leader();
    let follower = client(&cluster, cluster.follower()).await;
    let cancelled = put(&follower, "cancelled", HOUR, Duration::ZERO).await;
    let kept = put(&follower, "kept", 2 * HOUR, Duration::ZERO).await;
    let moved = put(&follower, "moved", 3 * HOUR, Duration::ZERO).await;
    assert_eq!(listed(&follower).await, [&cancelled, &kept, &moved]);
    let cancel = ask(|| {
        let (mut client, message_ids) = (follower.clone(), vec![cancelled.clone()]);
        async move { client.cancel_scheduled(CancelScheduledRequest { message_ids }).await }
    });
    cancel.await;
    let due = ask(|| {
        let mut client = follower.clone();
        let request = RescheduleRequest {
            message_id: moved.clone(),
            due: Some(Due::Delay(duration(HOUR).unwrap())),
        };
        async move { client.reschedule(request).await }
    });
    assert!(SystemTime::try_from(due.await.deliver_at.unwrap()).unwrap() <= SystemTime::now() + HOUR);
    assert_eq!(listed(&client(&cluster, leader).await).await, [&moved, &kept]);
    cluster.kill(leader);
    let next = cluster.leader();
    assert_eq!(listed(&client(&cluster, next).await).await, [&moved, &kept]);
    cluster.start_node(leader);
    cluster.await_settled();
    assert_eq!(listed(&client(&cluster, leader).await).await, [&moved, &kept]);
}
