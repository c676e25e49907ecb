//! Metrics of queues one by one.

use boltq_proto::queue::v1::PublishStreamRequest;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message};
use boltq_tests::harness::{Server, ServerOptions};

use super::scrape::Scrape;

fn of(queue: &str, scrape: &Scrape) -> [f64; 7] {
    let value = |name: &str| scrape.value(&format!("boltq_queue_{name}{{queue=\"{queue}\"}}"));
    [
        value("ready"),
        value("leased"),
        value("delayed"),
        value("dead_letters"),
        value("published_total"),
        value("delivered_total"),
        value("acked_total"),
    ]
}

/// One message into each of these queues, on one stream.
async fn fill(client: &mut QueueClient, queues: impl Iterator<Item = String> + Send + 'static) -> usize {
    let request = |queue| PublishStreamRequest {
        queue,
        messages: vec![message("x")],
        ..PublishStreamRequest::default()
    };
    let requests = tokio_stream::iter(queues.map(request));
    let mut answers = client.publish_stream(requests).await.expect("a stream").into_inner();
    let mut answered = 0;
    while let Some(answer) = answers.message().await.expect("an answer") {
        assert_eq!((answer.message_ids.len(), answer.failures.len()), (1, 0));
        answered += 1;
    }
    answered
}

#[tokio::test]
async fn each_queue_tells_what_is_in_it_and_what_has_happened() {
    let options = ServerOptions::memory().set("queue.retry_backoff", "0s");
    let server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    let name = r#"a "quoted" \ name"#;
    for _ in 0..5 {
        client.put(name, message("x")).await;
    }
    let mut late = message("late");
    late.delay = boltq_tests::harness::grpc::duration(std::time::Duration::from_secs(3_600));
    client.put(name, late).await;
    let deliveries = client.take(name, 3).await;
    assert_eq!(client.done(&deliveries[..1]).await, 1);
    let dead = boltq_proto::queue::v1::NackRequest {
        delivery_tokens: vec![deliveries[1].delivery_token.clone()],
        dead_letter: true,
        ..boltq_proto::queue::v1::NackRequest::default()
    };
    client.nack(dead).await.unwrap();
    let scrape = Scrape::of(server.admin());
    let written = r#"a \"quoted\" \\ name"#;
    assert_eq!(of(written, &scrape), [2.0, 1.0, 1.0, 1.0, 6.0, 3.0, 1.0]);
    assert_eq!(of("_other", &scrape), [0.0; 7]);
    assert_eq!(
        scrape.samples("boltq_queue_ready").len(),
        2,
        "dead letters are no queue of their own"
    );
}

#[tokio::test]
async fn ten_thousand_queues_make_less_than_a_megabyte() {
    const QUEUES: usize = 10_000;
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    // As long as names can be, nearly.
    let name = |number: usize| format!("{number:05}-{}", "n".repeat(190));
    assert_eq!(fill(&mut client, (0..QUEUES).map(name)).await, QUEUES);
    for _ in 0..9 {
        client.put(&name(7_777), message("x")).await;
    }
    let scrape = Scrape::of(server.admin());
    assert!(scrape.bytes() < 1 << 20, "{} bytes", scrape.bytes());
    let ready = scrape.samples("boltq_queue_ready");
    assert_eq!(ready.len(), 201);
    assert_eq!(ready.values().sum::<f64>(), QUEUES as f64 + 9.0);
    assert_eq!(
        ready[format!("queue=\"{}\"", name(7_777)).as_str()],
        10.0,
        "the deepest"
    );
    assert_eq!(scrape.value("boltq_queues"), QUEUES as f64);
    let published = scrape.samples("boltq_queue_published_total");
    assert_eq!(published.values().sum::<f64>(), QUEUES as f64 + 9.0);
    // Who is told of another time is told of the same queues.
    let again = Scrape::of(server.admin());
    assert!(again.samples("boltq_queue_ready").keys().eq(ready.keys()));
    assert_eq!(
        again.value(r#"boltq_queue_published_total{queue="_other"}"#),
        published[r#"queue="_other""#]
    );
}

#[tokio::test]
async fn how_many_queues_have_metrics_is_configured() {
    for (max, names) in [(0, 1), (2, 3)] {
        let server = Server::start(&ServerOptions::memory().set("metrics.queues_max", max));
        let mut client = connect(server.messaging()).await;
        fill(&mut client, (0..5).map(|number| format!("q{number}"))).await;
        let scrape = Scrape::of(server.admin());
        assert_eq!(scrape.samples("boltq_queue_ready").len(), names, "{max}");
        assert_eq!(scrape.samples("boltq_queue_ready").values().sum::<f64>(), 5.0);
    }
}
