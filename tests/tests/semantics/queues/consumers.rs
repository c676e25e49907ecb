//! Queues that serve one consumer at a time.

use std::time::Duration;

use boltq_proto::queue::v1::{Delivery, QueueSettings, SubscribeResponse};
use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Server, ServerOptions, eventually_async, within};
use tonic::Streaming;

use super::{create, subscribe, update};

const LONG: Duration = Duration::from_secs(20);

fn single() -> QueueSettings {
    QueueSettings {
        single_active_consumer: true,
        ..QueueSettings::default()
    }
}

async fn next(answers: &mut Streaming<SubscribeResponse>) -> Vec<Delivery> {
    let answer = within(LONG, "a delivery", answers.message()).await;
    answer.unwrap().unwrap().deliveries
}

fn texts(deliveries: &[Delivery]) -> Vec<String> {
    let text = |delivery: &Delivery| String::from_utf8(delivery.payload.to_vec()).unwrap();
    deliveries.iter().map(text).collect()
}

#[tokio::test]
async fn the_next_consumer_gets_what_the_first_one_left_in_order() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", single()).await.unwrap();
    let (first_requests, mut first) = subscribe(&mut client, "q", 2).await;
    client.put("q", message("0")).await;
    let zero = next(&mut first).await;
    let (_second_requests, mut second) = subscribe(&mut client, "q", 9).await;
    eventually_async(LONG, "both are there", || {
        let mut client = client.clone();
        async move { (client.look("q").await.consumers == 2).then_some(()) }
    })
    .await;
    for n in 1..=4 {
        client.put("q", message(n.to_string())).await;
    }
    assert_eq!(client.done(&zero).await, 1);
    // Two at a time, and the rest waits for it, too.
    let mut held = next(&mut first).await;
    while held.len() < 2 {
        held.extend(next(&mut first).await);
    }
    assert_eq!(texts(&held), ["1", "2"]);
    assert!(client.take("q", 9).await.is_empty());
    assert_eq!(client.look("q").await.ready, 2);
    drop((first_requests, first));
    let mut taken = next(&mut second).await;
    while taken.len() < 4 {
        taken.extend(next(&mut second).await);
    }
    assert_eq!(texts(&taken), ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn all_consumers_are_served_again_when_the_queue_says_so() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", single()).await.unwrap();
    let (_first_requests, mut first) = subscribe(&mut client, "q", 1).await;
    client.put("q", message("1")).await;
    assert_eq!(texts(&next(&mut first).await), ["1"]);
    let (_second_requests, mut second) = subscribe(&mut client, "q", 1).await;
    client.put("q", message("2")).await;
    assert_eq!(client.look("q").await.ready, 1);
    update(&mut client, "q", QueueSettings::default(), &["single_active_consumer"])
        .await
        .unwrap();
    assert_eq!(texts(&next(&mut second).await), ["2"]);
}

#[tokio::test]
async fn calls_without_a_connection_give_way_when_they_hold_nothing() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", single()).await.unwrap();
    for n in 1..=2 {
        client.put("q", message(n.to_string())).await;
    }
    let held = client.take("q", 1).await;
    let (_requests, mut answers) = subscribe(&mut client, "q", 9).await;
    eventually_async(LONG, "the subscriber is there", || {
        let mut client = client.clone();
        async move { (client.look("q").await.consumers == 1).then_some(()) }
    })
    .await;
    assert_eq!(client.look("q").await.ready, 1);
    assert_eq!(client.done(&held).await, 1);
    assert_eq!(texts(&next(&mut answers).await), ["2"]);
    client.put("q", message("3")).await;
    assert!(client.take("q", 1).await.is_empty());
    assert_eq!(texts(&next(&mut answers).await), ["3"]);
}
