//! `GetOverview` and `WatchOverview`.

use std::time::Duration;

use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;
use boltq_proto::admin::v1::{
    GetOverviewRequest, Overview, QueueOrder, QueueSelection, WatchOverviewRequest, WatchOverviewResponse,
};
use boltq_proto::queue::v1::PublishStreamRequest;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, duration, message};
use boltq_tests::harness::{Cluster, Server, ServerOptions, http, within};
use prost::Message as _;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

const PATIENCE: Duration = Duration::from_secs(60);

type AdminClient = AdminServiceClient<Channel>;

async fn started() -> (Server, AdminClient, QueueClient) {
    let server = Server::start(&ServerOptions::memory());
    let admin = AdminServiceClient::new(channel(server.messaging()).await.unwrap());
    let queues = connect(server.messaging()).await;
    (server, admin, queues)
}

fn selection(max: u32, order: QueueOrder, name_contains: &str) -> QueueSelection {
    QueueSelection {
        max,
        order: order.into(),
        name_contains: name_contains.to_owned(),
    }
}

async fn overview(admin: &mut AdminClient, queues: QueueSelection) -> Overview {
    let request = GetOverviewRequest {
        linearizable: true,
        queues: Some(queues),
    };
    let answer = admin.get_overview(request).await.unwrap().into_inner();
    answer.overview.unwrap()
}

async fn watch(
    admin: &mut AdminClient,
    interval: Duration,
    queues: QueueSelection,
) -> Streaming<WatchOverviewResponse> {
    let request = WatchOverviewRequest {
        interval: duration(interval),
        queues: Some(queues),
    };
    admin.watch_overview(request).await.unwrap().into_inner()
}

async fn next(stream: &mut Streaming<WatchOverviewResponse>) -> Overview {
    let response = within(PATIENCE, "an overview", stream.message()).await.unwrap();
    response.expect("the stream goes on").overview.unwrap()
}

fn names(overview: &Overview) -> Vec<&str> {
    overview.queues.iter().map(|queue| queue.name.as_str()).collect()
}

#[tokio::test]
async fn an_overview_has_what_there_is_in_the_order_that_is_asked_for() {
    let (server, mut admin, mut queues) = started().await;
    for (queue, count) in [("a", 1), ("big", 3), ("bag", 2)] {
        for _ in 0..count {
            queues.put(queue, message("x")).await;
        }
    }
    queues.take("big", 2).await;
    let all = overview(&mut admin, QueueSelection::default()).await;
    assert_eq!(names(&all), ["big", "bag", "a"]);
    let big = &all.queues[0];
    assert_eq!((big.ready, big.leased, big.delayed, big.change), (1, 2, 0, None));
    assert_eq!((all.ready, all.leased, all.queue_count, all.matching), (4, 2, 3, 3));
    assert_eq!((all.health.as_str(), all.leadership, all.rates), ("ok", None, None));
    let counts = all.counts.unwrap();
    assert_eq!((counts.published, counts.consumed, counts.acked), (6, 2, 0));
    assert_eq!(all.storage.unwrap().mode, "memory");
    let one = overview(&mut admin, selection(1, QueueOrder::Name, "b")).await;
    assert_eq!((names(&one), one.matching, one.queue_count), (vec!["bag"], 2, 3));
    // Both doors say the same.
    let admin_port = http::get(server.admin(), "/overview").unwrap().json();
    assert_eq!(admin_port["health"], "ok");
    assert_eq!(admin_port["stats"]["PendingCount"], 2);
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_refused_by_name() {
    let (_server, mut admin, _) = started().await;
    let mut refused = async |interval: Option<Duration>, queues: QueueSelection| {
        let request = WatchOverviewRequest {
            interval: interval.and_then(duration),
            queues: Some(queues),
        };
        let status = admin.watch_overview(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        status.message().to_owned()
    };
    let short = refused(Some(Duration::from_millis(99)), QueueSelection::default()).await;
    assert!(short.contains("interval is 99ms; 100ms to 3600s"), "{short}");
    let long = refused(Some(Duration::from_secs(3_601)), QueueSelection::default()).await;
    assert!(long.contains("interval is 3601s"), "{long}");
    let many = refused(None, selection(1_001, QueueOrder::Name, "")).await;
    assert!(many.contains("queues.max is 1001; at most 1000"), "{many}");
    let unknown = QueueSelection {
        order: 9,
        ..QueueSelection::default()
    };
    let unknown = refused(None, unknown).await;
    assert!(unknown.contains("queues.order 9"), "{unknown}");
}

#[tokio::test]
async fn a_watch_tells_what_changed_and_ends_with_the_server() {
    let (server, mut admin, mut queues) = started().await;
    queues.put("still", message("x")).await;
    let interval = Duration::from_millis(100);
    let mut stream = watch(&mut admin, interval, selection(0, QueueOrder::Change, "")).await;
    let first = next(&mut stream).await;
    assert_eq!(
        (names(&first), first.rates, first.queues[0].change),
        (vec!["still"], None, None)
    );
    let moved = within(PATIENCE, "a look at what changed", async {
        loop {
            queues.put("moving", message("x")).await;
            let look = next(&mut stream).await;
            if look.rates.is_some_and(|rates| rates.published > 0.0) {
                return look;
            }
        }
    })
    .await;
    assert_eq!(names(&moved), ["moving", "still"]);
    assert!(moved.queues[0].change.unwrap() > 0.0, "{moved:?}");
    assert_eq!(moved.queues[1].change, Some(0.0));
    let ended = tokio::spawn(async move {
        loop {
            if let Err(status) = within(PATIENCE, "the end", stream.message()).await {
                return status;
            }
        }
    });
    let mut server = server;
    tokio::task::spawn_blocking(move || server.terminate()).await.unwrap();
    assert_eq!(ended.await.unwrap().code(), Code::Unavailable);
}

/// A queue with one message for each of so many names of so many bytes.
async fn fill(queues: &mut QueueClient, count: usize, name_bytes: usize) {
    let requests = (0..count).map(move |n| PublishStreamRequest {
        queue: format!("{n:0name_bytes$}"),
        messages: vec![message("x")],
        ..PublishStreamRequest::default()
    });
    let mut answers = queues
        .publish_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    while answers.message().await.unwrap().is_some() {}
}

/// What is not taken is not made. Each overview has some hundred KiB, and the window of the connection 64, so the transport takes few
/// in advance.
#[tokio::test]
async fn who_reads_slowly_gets_fewer_of_them_and_soon_the_present() {
    let (server, _, mut queues) = started().await;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.messaging()))
        .unwrap()
        .initial_stream_window_size(64 << 10)
        .initial_connection_window_size(64 << 10);
    let mut admin = AdminServiceClient::new(endpoint.connect().await.unwrap());
    fill(&mut queues, 1_000, 190).await;
    let interval = Duration::from_millis(100);
    let mut stream = watch(&mut admin, interval, selection(1_000, QueueOrder::Name, "")).await;
    assert!(next(&mut stream).await.encoded_len() > 190_000);
    tokio::time::sleep(40 * interval).await;
    queues.put("late", message("x")).await;
    let mut old = 0;
    while next(&mut stream).await.queue_count == 1_000 {
        old += 1;
    }
    assert!(old <= 10, "{old} overviews of 40 were made in advance");
}

#[tokio::test]
async fn with_ten_thousand_queues_an_answer_stays_small() {
    let (_server, mut admin, mut queues) = started().await;
    fill(&mut queues, 10_000, 100).await;
    for _ in 0..2 {
        queues.put("deep", message("x")).await;
    }
    let default = overview(&mut admin, QueueSelection::default()).await;
    assert_eq!(
        (default.queues.len(), default.queue_count, default.matching),
        (100, 10_001, 10_001)
    );
    assert_eq!((names(&default)[0], default.ready), ("deep", 10_002));
    let most = overview(&mut admin, selection(1_000, QueueOrder::Name, "")).await;
    assert_eq!(most.queues.len(), 1_000);
    let bytes = most.encoded_len();
    assert!(bytes < 300 << 10, "{bytes} bytes");
    let mut stream = watch(
        &mut admin,
        Duration::from_millis(100),
        selection(3, QueueOrder::Depth, ""),
    )
    .await;
    next(&mut stream).await;
    let second = next(&mut stream).await;
    assert_eq!((second.queues.len(), second.queues[0].change), (3, Some(0.0)));
    assert!(second.encoded_len() < 2_048, "{second:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_lead_answers_and_says_who_does() {
    let mut cluster = Cluster::start(3);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut queues = connect(cluster.node(leader).messaging()).await;
    queues.put("q", message("x")).await;
    let mut admin = AdminServiceClient::new(channel(cluster.node(follower).messaging()).await.unwrap());
    let look = overview(&mut admin, QueueSelection::default()).await;
    assert_eq!((names(&look), look.ready), (vec!["q"], 1));
    let leadership = look.leadership.unwrap();
    assert_eq!(leadership.node_id, cluster.node(follower).name());
    assert_eq!(leadership.leader_id, cluster.node(leader).name());
    // The watch goes on while the leader is replaced.
    let mut stream = watch(&mut admin, Duration::from_millis(100), QueueSelection::default()).await;
    next(&mut stream).await;
    cluster.kill(leader);
    let next_leader = within(PATIENCE, "another leader", async {
        loop {
            let leadership = next(&mut stream).await.leadership.unwrap();
            if !leadership.leader_id.is_empty() && leadership.leader_id != cluster.node(leader).name() {
                return leadership.leader_id;
            }
        }
    })
    .await;
    assert!(cluster.nodes().iter().any(|node| node.name() == next_leader));
}
