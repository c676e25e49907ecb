//! Consume with `wait`: the answer comes with the first message (weakness B24).

use std::time::{Duration, Instant};

use boltq_proto::queue::v1::{ConsumeRequest, Delivery};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, duration, message};
use boltq_tests::harness::{Server, ServerOptions, eventually_async};
use tokio::task::JoinHandle;

fn poll(client: &QueueClient, wait: Duration, max_messages: u32) -> JoinHandle<(Vec<Delivery>, Duration)> {
    let mut client = client.clone();
    tokio::spawn(async move {
        let started = Instant::now();
        let request = ConsumeRequest {
            queue: "q".into(),
            wait: duration(wait),
            max_messages,
            lease: None,
        };
        (
            client.consume(request).await.unwrap().into_inner().deliveries,
            started.elapsed(),
        )
    })
}

async fn waiting(client: &QueueClient, consumers: u32) {
    eventually_async(Duration::from_secs(5), "the consumers wait", || {
        let mut client = client.clone();
        async move { (client.look("q").await.consumers == consumers).then_some(()) }
    })
    .await;
}

async fn connected() -> (Server, QueueClient) {
    let server = Server::start(&ServerOptions::memory().set("queue.retry_backoff", "200ms"));
    let mut client = connect(server.messaging()).await;
    client.take("q", 1).await;
    (server, client)
}

#[tokio::test]
async fn a_wait_ends_with_the_first_message() {
    let (_server, mut client) = connected().await;
    let call = poll(&client, Duration::from_secs(30), 10);
    waiting(&client, 1).await;
    client.put("q", message("x")).await;
    let published = Instant::now();
    let (deliveries, _) = call.await.unwrap();
    assert_eq!(deliveries.len(), 1);
    assert!(published.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_wait_for_nothing_ends_in_time() {
    let (_server, client) = connected().await;
    let (deliveries, waited) = poll(&client, Duration::from_millis(500), 1).await.unwrap();
    assert!(deliveries.is_empty());
    assert!(
        (Duration::from_millis(490)..Duration::from_millis(1500)).contains(&waited),
        "{waited:?}"
    );
}

#[tokio::test]
async fn waiting_consumers_get_one_message_each() {
    let (_server, mut client) = connected().await;
    let calls: Vec<_> = (0..10).map(|_| poll(&client, Duration::from_secs(30), 1)).collect();
    waiting(&client, 10).await;
    for number in 0..10_u8 {
        client.put("q", message(vec![number])).await;
    }
    let mut payloads = Vec::new();
    for call in calls {
        payloads.extend(call.await.unwrap().0.into_iter().map(|delivery| delivery.payload[0]));
    }
    payloads.sort_unstable();
    assert_eq!(payloads, (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_cancelled_wait_takes_no_message_with_it() {
    let (_server, mut client) = connected().await;
    let call = poll(&client, Duration::from_secs(30), 1);
    waiting(&client, 1).await;
    call.abort();
    waiting(&client, 0).await;
    client.put("q", message("x")).await;
    let delivery = client.take_one("q").await;
    assert_eq!((&delivery.payload[..], delivery.attempts), (&b"x"[..], 0));
}

/// Cancelled in the moment when the message comes: it may have been leased for nobody, but not lost.
#[tokio::test]
async fn messages_survive_consumers_that_leave_as_they_come() {
    let server = Server::start(
        &ServerOptions::memory()
            .set("queue.ack_timeout", "1s")
            .set("queue.retry_backoff", "1ms"),
    );
    let mut client = connect(server.messaging()).await;
    client.take("q", 1).await;
    for number in 0..20_u8 {
        let leaver = connect(server.messaging()).await;
        // What an earlier leaver did not take is there at once, so whether this one waits is open.
        let call = poll(&leaver, Duration::from_secs(30), 1);
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut publisher = client.clone();
        let publish = tokio::spawn(async move { publisher.put("q", message(vec![number])).await });
        tokio::time::sleep(Duration::from_micros(u64::from(number) * 40)).await;
        call.abort();
        drop(leaver);
        publish.await.unwrap();
        waiting(&client, 0).await;
    }
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 20 {
        let delivery = client.take_one("q").await;
        assert_eq!(client.done(std::slice::from_ref(&delivery)).await, 1);
        assert!(seen.insert(delivery.payload[0]), "{} came twice", delivery.payload[0]);
    }
}

#[tokio::test]
async fn a_wait_is_ended_by_a_delayed_message_and_by_the_end_of_a_backoff() {
    let (_server, mut client) = connected().await;
    let delayed = Message {
        delay: duration(Duration::from_millis(300)),
        ..message("late")
    };
    client.put("q", delayed).await;
    let (deliveries, waited) = poll(&client, Duration::from_secs(30), 1).await.unwrap();
    assert_eq!(deliveries[0].payload, "late");
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    let nack = boltq_proto::queue::v1::NackRequest {
        delivery_tokens: vec![deliveries[0].delivery_token.clone()],
        ..Default::default()
    };
    client.nack(nack).await.unwrap();
    let (deliveries, waited) = poll(&client, Duration::from_secs(30), 1).await.unwrap();
    assert_eq!(deliveries[0].attempts, 1);
    assert!(
        (Duration::from_millis(90)..Duration::from_secs(2)).contains(&waited),
        "{waited:?}"
    );
}

#[tokio::test]
async fn a_shutdown_ends_the_waits() {
    let (mut server, client) = connected().await;
    let mut waiting_client = client.clone();
    let call = tokio::spawn(async move {
        let wait = duration(Duration::from_secs(60));
        waiting_client
            .consume(ConsumeRequest {
                queue: "q".into(),
                wait,
                ..Default::default()
            })
            .await
    });
    waiting(&client, 1).await;
    let stopping = Instant::now();
    let status = tokio::task::spawn_blocking(move || server.terminate()).await.unwrap();
    assert!(status.success(), "{status}");
    assert!(stopping.elapsed() < Duration::from_secs(12), "{:?}", stopping.elapsed());
    // Nothing was there, so either answer is honest: nothing, or that the server stops.
    if let Ok(answer) = call.await.unwrap() {
        assert!(answer.into_inner().deliveries.is_empty());
    }
}
