//! Delays and times to live when the leader is killed: both hold, and what is not due can be changed at any node.

use std::time::{Duration, Instant, SystemTime};

use boltq_proto::queue::v1::reschedule_request::Due;
use boltq_proto::queue::v1::{CancelScheduledRequest, ListScheduledRequest, RescheduleRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, duration, message};
use boltq_tests::harness::{Cluster, ServerOptions, eventually_async};
use bytes::Bytes;

const HOUR: Duration = Duration::from_secs(3600);
const DEADLINE: Duration = Duration::from_secs(60);

async fn client(cluster: &Cluster, index: usize) -> QueueClient {
    connect(cluster.node(index).messaging()).await
}

async fn put(client: &mut QueueClient, delay: Duration, ttl: Duration) -> Bytes {
    let message = Message {
        delay: duration(delay).filter(|_| !delay.is_zero()),
        ttl: duration(ttl).filter(|_| !ttl.is_zero()),
        ..message("x")
    };
    client.put("q", message).await
}

async fn listed(client: &mut QueueClient) -> Vec<Bytes> {
    let request = ListScheduledRequest {
        queue: "q".to_owned(),
        ..ListScheduledRequest::default()
    };
    let answer = client.list_scheduled(request).await.unwrap().into_inner();
    answer.messages.into_iter().map(|message| message.message_id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn delays_and_times_to_live_hold_over_a_killed_leader() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::disk());
    let leader = cluster.leader();
    let mut follower = client(&cluster, cluster.follower()).await;
    let published = Instant::now();
    let lives = put(&mut follower, Duration::ZERO, Duration::ZERO).await;
    for _ in 0..10 {
        put(&mut follower, Duration::ZERO, Duration::from_secs(3)).await;
        put(&mut follower, HOUR, Duration::from_secs(3)).await;
    }
    let soon = put(&mut follower, Duration::from_secs(4), Duration::ZERO).await;
    cluster.kill(leader);
    let next = cluster.leader();
    let mut now = client(&cluster, next).await;
    // Whatever became of those that expire: what is delayed is not early.
    let taken = eventually_async(DEADLINE, "what is delayed and what lives", || {
        let mut client = now.clone();
        async move {
            let queue = client.look("q").await;
            (queue.ready == 2 && queue.delayed == 0).then_some(client.take("q", 10).await)
        }
    })
    .await;
    assert!(published.elapsed() >= Duration::from_secs(4));
    let ids: Vec<_> = taken.iter().map(|delivery| delivery.message_id.clone()).collect();
    assert_eq!(ids, [soon, lives]);
    let due = SystemTime::try_from(taken[0].deliver_at.unwrap()).unwrap();
    assert!(SystemTime::now() >= due);
    assert_eq!(now.done(&taken).await, 2);
    let queue = now.look("q").await;
    assert_eq!((queue.ready, queue.leased, queue.delayed), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_due_is_listed_and_changed_through_every_node_and_stays_so() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::disk());
    let (leader, other) = (cluster.leader(), cluster.follower());
    let mut follower = client(&cluster, other).await;
    let cancelled = put(&mut follower, HOUR, Duration::ZERO).await;
    let kept = put(&mut follower, 2 * HOUR, Duration::ZERO).await;
    let moved = put(&mut follower, 3 * HOUR, Duration::ZERO).await;
    assert_eq!(listed(&mut follower).await, [&cancelled, &kept, &moved]);
    let request = CancelScheduledRequest {
        message_ids: vec![cancelled],
    };
    let answer = follower.cancel_scheduled(request).await.unwrap().into_inner();
    assert_eq!((answer.cancelled, answer.failures.len()), (1, 0));
    let request = RescheduleRequest {
        message_id: moved.clone(),
        due: Some(Due::Delay(duration(HOUR).unwrap())),
    };
    follower.reschedule(request).await.unwrap();
    assert_eq!(listed(&mut client(&cluster, leader).await).await, [&moved, &kept]);
    cluster.kill(leader);
    let next = cluster.leader();
    assert_eq!(listed(&mut client(&cluster, next).await).await, [&moved, &kept]);
    cluster.start_node(leader);
    cluster.await_settled();
    assert_eq!(listed(&mut client(&cluster, leader).await).await, [&moved, &kept]);
}
