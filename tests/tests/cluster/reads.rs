//! Reads at any node: what is current, what may be old, and what a node cannot make sure of.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use boltq_proto::admin::v1::GetStatsRequest;
use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;
use boltq_proto::queue::v1::{GetQueueRequest, ListQueuesRequest, PeekRequest};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, message, reason};
use boltq_tests::harness::{Cluster, ServerOptions, http};
use serde_json::json;
use tonic::{Code, Status};

const QUEUE: &str = "jobs";
/// A node gives up after 5 s; this is for a machine that is busy.
const REFUSED_WITHIN: Duration = Duration::from_secs(25);

/// What the calls that only look say of the queue: messages that `Peek` shows, and figures of the others.
async fn looks(node: SocketAddr, linearizable: bool) -> Result<[u64; 4], Status> {
    let channel = channel(node).await.unwrap();
    let mut admin = AdminServiceClient::new(channel.clone());
    let mut client = QueueClient::new(channel);
    let peek = PeekRequest {
        queue: QUEUE.to_owned(),
        max_messages: 1_000,
        linearizable,
    };
    let get = GetQueueRequest {
        queue: QUEUE.to_owned(),
        linearizable,
    };
    let list = ListQueuesRequest {
        linearizable,
        ..ListQueuesRequest::default()
    };
    let stats = admin.get_stats(GetStatsRequest { linearizable }).await?.into_inner();
    let peeked = client.peek(peek).await?.into_inner().deliveries;
    let queue = client.get_queue(get).await?.into_inner().queue.unwrap();
    let listed = client.list_queues(list).await?.into_inner().queues;
    let listed = listed
        .iter()
        .find(|queue| queue.name == QUEUE)
        .map_or(0, |queue| queue.ready);
    Ok([peeked.len() as u64, queue.ready, listed, stats.queues[QUEUE]])
}

/// What is current. A node gives up after 5 s, for which a busy machine may stand still.
async fn now<T, F: Future<Output = Result<T, Status>>>(mut ask: impl FnMut() -> F) -> T {
    for _ in 0..5 {
        match ask().await {
            Err(status) if status.code() == Code::Unavailable => {}
            answer => return answer.unwrap(),
        }
    }
    ask().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_shows_at_once_what_was_answered_before_if_it_is_asked_to() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory());
    cluster.add(false);
    cluster.await_settled();
    let mut client = connect(cluster.node(cluster.leader()).messaging()).await;
    for count in 1..=25 {
        client.put(QUEUE, message(vec![count])).await;
        let count = u64::from(count);
        for node in cluster.nodes() {
            let seen = now(|| looks(node.messaging(), true)).await;
            assert_eq!(seen, [count; 4], "{}", node.name());
        }
        client.put(QUEUE, message("more")).await;
        for node in cluster.nodes() {
            let stats = http::get(node.admin(), "/stats?linearizable=true").unwrap();
            assert_eq!(stats.json()["Queues"], json!({ QUEUE: count + 1 }), "{}", node.name());
        }
        let taken = client.take(QUEUE, 1).await;
        client.done(&taken).await;
    }
}

/// It was stopped for a moment and lags when it is asked: a plain read would show what it had before.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lags_answers_when_it_has_caught_up() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory());
    let mut client = connect(cluster.node(cluster.leader()).messaging()).await;
    client.put(QUEUE, message("x")).await;
    let lagging = cluster.follower();
    let mut replica = connect(cluster.node(lagging).messaging()).await;
    replica.look(QUEUE).await;
    let mut count = 1;
    for _ in 0..10 {
        cluster.pause(lagging);
        for _ in 0..50 {
            client.put(QUEUE, message("x")).await;
            count += 1;
        }
        let asking = replica.clone();
        let get = GetQueueRequest {
            queue: QUEUE.to_owned(),
            linearizable: true,
        };
        let asked = tokio::spawn(now(move || {
            let (mut asking, get) = (asking.clone(), get.clone());
            async move { asking.get_queue(get).await }
        }));
        tokio::time::sleep(Duration::from_millis(20)).await;
        cluster.resume(lagging);
        let queue = asked.await.unwrap().into_inner().queue.unwrap();
        assert!(queue.ready >= count, "{} of {count}", queue.ready);
    }
}

/// Replicas do not know leases: what is leased looks ready. Everything else is as the leader shows it.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_peeks_by_itself() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory());
    let leader = cluster.leader();
    let mut client = connect(cluster.node(leader).messaging()).await;
    for (payload, priority) in [("a", 0), ("b", 9), ("c", 0)] {
        let message = boltq_proto::r#type::v1::Message {
            priority,
            ..message(payload)
        };
        client.put(QUEUE, message).await;
    }
    let peek = |linearizable| PeekRequest {
        queue: QUEUE.to_owned(),
        linearizable,
        ..PeekRequest::default()
    };
    let shown = client.peek(peek(false)).await.unwrap().into_inner().deliveries;
    assert_eq!(client.take(QUEUE, 1).await[0].payload, "b");
    let follower = cluster.follower();
    let mut replica = connect(cluster.node(follower).messaging()).await;
    let same = replica.peek(peek(true)).await.unwrap().into_inner().deliveries;
    assert_eq!(same, shown);
    let payloads: Vec<&[u8]> = same.iter().map(|delivery| &delivery.payload[..]).collect();
    assert_eq!(payloads, [b"b", b"a", b"c"]);
    let left = client.peek(peek(false)).await.unwrap().into_inner().deliveries;
    assert_eq!(left, shown[1..], "the leader knows what is leased");
    // Nobody is asked for it.
    cluster.pause(leader);
    assert_eq!(replica.peek(peek(false)).await.unwrap().into_inner().deliveries, shown);
    cluster.resume(leader);
}

/// A leader that lost its followers, and followers that lost their leader: none of them can know what the others do.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_majority_refuses_to_say_what_is_current_and_says_what_it_has() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory());
    let mut client = connect(cluster.node(cluster.leader()).messaging()).await;
    client.put(QUEUE, message("x")).await;
    for leads in [true, false] {
        let leader = cluster.leader();
        let alone = if leads { leader } else { cluster.follower() };
        let others: Vec<usize> = (0..3).filter(|node| *node != alone).collect();
        for node in &others {
            cluster.pause(*node);
        }
        let (node, asked) = (cluster.node(alone), Instant::now());
        let refused = looks(node.messaging(), true).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert!(["NOT_LEADER", "NOT_CURRENT"].contains(&&*reason(&refused)), "{refused}");
        let response = http::get(node.admin(), "/stats?linearizable=true").unwrap();
        assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
        assert!(asked.elapsed() < 2 * REFUSED_WITHIN, "{:?}", asked.elapsed());
        assert_eq!(looks(node.messaging(), false).await.unwrap(), [1; 4]);
        for node in others {
            cluster.resume(node);
        }
        cluster.await_settled();
        let alone = cluster.node(alone).messaging();
        assert_eq!(now(|| looks(alone, true)).await, [1; 4]);
    }
}

#[test]
fn a_query_that_is_no_answer_to_the_question_is_refused() {
    let cluster = Cluster::start_with(1, &ServerOptions::memory());
    let admin = cluster.node(0).admin();
    for (query, status) in [
        ("", 200),
        ("?linearizable=true", 200),
        ("?linearizable=false", 200),
        ("?linearizable=1", 200),
        ("?linearizable=maybe", 400),
    ] {
        assert_eq!(
            http::get(admin, &format!("/stats{query}")).unwrap().status,
            status,
            "{query}"
        );
    }
}
