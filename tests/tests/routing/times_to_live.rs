//! Copies without a time to live get that of their queue.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use boltq_proto::queue::v1::{CreateQueueRequest, PeekRequest, QueueSettings};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, duration, message};
use boltq_tests::harness::{Cluster, Server, ServerOptions, eventually_async};
use serde_json::json;

use super::exchanges::ExchangeCalls;
use super::repeated::Clients;
use super::topics_grpc::subscription;

const PATIENCE: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_millis(1_500);

async fn create(queues: &mut QueueClient, queue: &str, ttl: Duration) {
    let settings = QueueSettings {
        default_ttl: duration(ttl),
        ..QueueSettings::default()
    };
    let request = CreateQueueRequest {
        queue: queue.to_owned(),
        settings: Some(settings),
    };
    queues.create_queue(request).await.unwrap();
}

async fn await_empty(queues: &QueueClient, queue: &'static str) {
    eventually_async(PATIENCE, "the copy is over", || {
        let mut queues = queues.clone();
        async move {
            let there = queues.look(queue).await;
            (there.ready + there.leased + there.delayed == 0).then_some(())
        }
    })
    .await;
}

fn unix(time: &prost_types::Timestamp) -> Duration {
    let seconds = u64::try_from(time.seconds).unwrap();
    Duration::new(seconds, u32::try_from(time.nanos).unwrap())
}

#[tokio::test]
async fn a_copy_goes_at_its_time_and_another_one_stays() {
    let server = Server::start(&ServerOptions::memory());
    let mut clients = Clients::connect(server.messaging()).await;
    let mut binary = BinaryClient::connect(server.messaging());
    create(&mut clients.queues, "short", TTL).await;
    create(&mut clients.queues, "long", Duration::from_secs(3_600)).await;
    binary.declare("e", "fanout");
    for queue in ["short", "long", "plain"] {
        binary.bind("e", queue, "");
    }
    let (before, begun) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap(), Instant::now());
    binary.route("e", "", json!(1));
    binary.route("", "short", json!(2));
    let peek = |queue: &str| PeekRequest {
        queue: queue.to_owned(),
        ..PeekRequest::default()
    };
    let ends = |queue: &'static str| {
        let mut queues = clients.queues.clone();
        async move {
            let peeked = queues.peek(peek(queue)).await.unwrap().into_inner().deliveries;
            let ends = peeked.iter().map(|one| one.expires_at.as_ref().map(unix));
            ends.collect::<Vec<_>>()
        }
    };
    let long = ends("long").await;
    let hour = before + Duration::from_secs(3_600);
    let least = Duration::from_millis(u64::try_from(hour.as_millis()).unwrap());
    assert!(long.len() == 1 && long[0].unwrap() >= least, "{long:?} {hour:?}");
    assert_eq!(ends("plain").await, [None]);
    // Until its time is over, nothing is missing.
    let there = clients.queues.look("short").await.ready;
    assert!(there == 2 || begun.elapsed() >= TTL, "{there}");
    await_empty(&clients.queues, "short").await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(now >= before + TTL, "gone too early");
    assert_eq!(clients.queues.take("short", 9).await, []);
    let taken = clients.queues.take_one("long").await;
    assert_eq!(taken.expires_at.as_ref().map(unix), long[0]);
    assert_eq!(clients.queues.look("plain").await.ready, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn backlogs_of_subscriptions_forget_what_is_over_also_after_a_failover() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::disk());
    let leader = cluster.leader();
    let mut clients = Clients::connect(cluster.node(leader).messaging()).await;
    create(&mut clients.queues, "t:s", Duration::from_secs(8)).await;
    for id in ["s", "other"] {
        drop(clients.topics.subscribe(subscription("t", id, true)).await.unwrap());
    }
    let before = SystemTime::now();
    let own = Message {
        ttl: duration(Duration::from_secs(3_600)),
        ..message("lives longer")
    };
    clients.tell("t", message("short")).await.unwrap();
    clients.tell("t", own).await.unwrap();
    cluster.kill(leader);
    let next = cluster.leader();
    let mut clients = Clients::connect(cluster.node(next).messaging()).await;
    eventually_async(PATIENCE, "the copy is over", || {
        let mut queues = clients.queues.clone();
        async move { (queues.look("t:s").await.ready == 1).then_some(()) }
    })
    .await;
    assert!(before.elapsed().unwrap() >= Duration::from_secs(8), "gone too early");
    assert_eq!(clients.queues.look("t:other").await.ready, 2);
    let left = clients.queues.take_one("t:s").await;
    assert_eq!(&left.payload[..], b"lives longer");
}
