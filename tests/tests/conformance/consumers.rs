//! Consumers that die, hang, or leave as they come: the others get what they had, and nobody pays for a neighbour.

use std::time::Duration;

use boltq_proto::queue::v1::subscribe_request::Request as Kind;
use boltq_proto::queue::v1::{
    ConsumeRequest, Delivery, SubscribeAck, SubscribeInit, SubscribeNack, SubscribeRequest, SubscribeResponse,
};
use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, duration, message};
use boltq_tests::harness::{Server, ServerOptions, eventually, eventually_async, within};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::calls::{Calls, PATIENCE};

/// A stream that takes from the queue `q`.
struct Consumer {
    requests: mpsc::Sender<SubscribeRequest>,
    responses: Streaming<SubscribeResponse>,
}

impl Consumer {
    async fn open(client: &mut QueueClient, max_in_flight: u32) -> Self {
        let (requests, outbound) = mpsc::channel(64);
        let init = SubscribeInit {
            queue: "q".to_owned(),
            max_in_flight,
            ..SubscribeInit::default()
        };
        let consumer = requests.send(SubscribeRequest {
            request: Some(Kind::Init(init)),
        });
        consumer.await.unwrap();
        let opened = within(PATIENCE, "a stream", client.subscribe(ReceiverStream::new(outbound)));
        let responses = opened.await.unwrap().into_inner();
        Self { requests, responses }
    }

    async fn send(&self, kind: Kind) {
        let request = SubscribeRequest { request: Some(kind) };
        self.requests.send(request).await.unwrap();
    }

    async fn take(&mut self, count: usize) -> Vec<Delivery> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let response = within(PATIENCE, "a delivery", self.responses.message()).await.unwrap();
            taken.extend(response.expect("the stream goes on").deliveries);
        }
        taken
    }
}

async fn fill(client: &mut QueueClient, count: u8) {
    for number in 0..count {
        client.put("q", message(vec![number])).await;
    }
}

async fn await_none_leased(client: &QueueClient) {
    eventually_async(PATIENCE, "nobody holds anything", || {
        let mut client = client.clone();
        async move { (client.look("q").await.leased == 0).then_some(()) }
    })
    .await;
}

fn numbers(deliveries: &[Delivery]) -> Vec<u8> {
    deliveries.iter().map(|delivery| delivery.payload[0]).collect()
}

/// It takes fifty at a time, and the seventh of them makes it fail and end, each time.
#[tokio::test]
async fn a_message_that_ends_its_consumer_dies_alone_and_costs_its_neighbours_nothing() {
    const BAD: u8 = 7;
    let options = ServerOptions::memory()
        .set("queue.max_retry", 4)
        .set("queue.retry_backoff", "1ms");
    let server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    fill(&mut client, 50).await;
    for attempts in 0..5 {
        let mut own = connect(server.messaging()).await;
        let mut consumer = Consumer::open(&mut own, 50).await;
        let taken = consumer.take(50).await;
        let bad = taken.iter().find(|delivery| delivery.payload[0] == BAD).unwrap();
        assert_eq!(bad.attempts, attempts);
        let failed = SubscribeNack {
            delivery_tokens: vec![bad.delivery_token.clone()],
            request_id: 1,
            ..SubscribeNack::default()
        };
        consumer.send(Kind::Nack(failed)).await;
        let settled = async {
            loop {
                let response = consumer.responses.message().await.unwrap().expect("an answer");
                if let [settled] = &response.settled[..] {
                    return settled.failures.clone();
                }
            }
        };
        assert_eq!(within(PATIENCE, "the answer", settled).await, []);
        drop((consumer, own));
        await_none_leased(&client).await;
    }
    let dead = client.take("q_dead_letter", 50).await;
    assert_eq!(numbers(&dead), [BAD]);
    let rest = client.take("q", 50).await;
    assert_eq!(
        numbers(&rest),
        (0..50).filter(|number| *number != BAD).collect::<Vec<_>>()
    );
    assert!(rest.iter().all(|delivery| delivery.attempts == 0));
}

/// Its connection stays open, as when its machine has lost power: it does not even answer the pings of HTTP/2.
#[test]
fn the_leases_of_a_consumer_that_answers_no_pings_go_to_others() {
    let server = Server::start(&ServerOptions::memory().set("queue.ack_timeout", "1h"));
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (hangs, lives) = (runtime(), runtime());
    let mut client = lives.block_on(connect(server.messaging()));
    lives.block_on(fill(&mut client, 50));
    // Nothing of it goes on as soon as nobody waits for its runtime.
    let held = hangs.block_on(async {
        let mut client = connect(server.messaging()).await;
        let mut consumer = Consumer::open(&mut client, 50).await;
        assert_eq!(consumer.take(50).await.len(), 50);
        (client, consumer)
    });
    lives.block_on(async {
        assert_eq!(client.look("q").await.leased, 50);
        eventually_async(2 * PATIENCE, "it is given up", || {
            let mut client = client.clone();
            async move { (client.look("q").await.leased == 0).then_some(()) }
        })
        .await;
        let taken = client.take("q", 50).await;
        assert_eq!(numbers(&taken), (0..50).collect::<Vec<_>>());
        assert!(taken.iter().all(|delivery| delivery.attempts == 0));
    });
    drop(held);
}

#[tokio::test]
async fn a_consumer_that_hangs_keeps_what_it_holds_and_nothing_else_from_the_others() {
    let server = Server::start(&ServerOptions::memory());
    let mut clients = [connect(server.messaging()).await, connect(server.messaging()).await];
    let mut hangs = Consumer::open(&mut clients[0], 10).await;
    let mut works = Consumer::open(&mut clients[1], 10).await;
    let mut client = connect(server.messaging()).await;
    fill(&mut client, 200).await;
    let held = numbers(&hangs.take(10).await);
    let mut done = Vec::new();
    while done.len() < 190 {
        let taken = works.take(1).await;
        done.extend(numbers(&taken));
        let ack = SubscribeAck {
            delivery_tokens: taken.into_iter().map(|delivery| delivery.delivery_token).collect(),
            request_id: 0,
        };
        works.send(Kind::Ack(ack)).await;
    }
    done.sort_unstable();
    assert_eq!(
        done,
        (0..200).filter(|number| !held.contains(number)).collect::<Vec<_>>()
    );
    // A third one gets work as soon as there is some, whatever the first one does.
    let mut third = connect(server.messaging()).await;
    drop(works);
    drop(hangs);
    await_none_leased(&client).await;
    assert_eq!(numbers(&third.take("q", 200).await), held);
}

#[tokio::test]
async fn calls_that_are_given_up_as_soon_as_they_are_made_leave_nothing_behind() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    client.take("q", 1).await;
    let before = server.stat().rss_bytes();
    let leaving = connect(server.messaging()).await;
    for _ in 0..100 {
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let mut leaving = leaving.clone();
                tokio::spawn(async move {
                    let wait = ConsumeRequest {
                        queue: "q".to_owned(),
                        wait: duration(Duration::from_secs(60)),
                        ..ConsumeRequest::default()
                    };
                    // The server may end a connection that does nothing else.
                    let _ = leaving.consume(wait).await;
                })
            })
            .collect();
        tokio::task::yield_now().await;
        calls.iter().for_each(tokio::task::JoinHandle::abort);
    }
    drop(leaving);
    eventually_async(PATIENCE, "nobody waits", || {
        let mut client = client.clone();
        async move { (client.look("q").await.consumers == 0).then_some(()) }
    })
    .await;
    let grown = server.stat().rss_bytes().saturating_sub(before);
    assert!(grown < 40 << 20, "{} MiB", grown >> 20);
    client.put("q", message("x")).await;
    assert_eq!(client.take("q", 1).await[0].attempts, 0);
}

/// What its socket had taken may be gone with it; everything behind that comes to whoever subscribes next, in order.
#[test]
fn a_subscriber_that_vanishes_in_its_backlog_leaves_the_rest_to_the_next_one() {
    const MESSAGES: u64 = 120;
    let server = Server::start(&ServerOptions::disk().set("storage.sync", "never"));
    let mut publisher = BinaryClient::connect(server.messaging());
    BinaryClient::connect(server.messaging()).subscribe("t", "s", true);
    let nobody = || (publisher.stats()["Topics"] == json!({})).then_some(());
    eventually(PATIENCE, "nobody listens", nobody);
    // Three times as much as sockets hold.
    let filler = "x".repeat(256 << 10);
    for number in 0..MESSAGES {
        let body = json!({"topic": "t", "payload": [number, filler]});
        publisher.ask(command::PUBLISH_TOPIC, &body);
    }
    let mut vanishes = BinaryClient::connect(server.messaging());
    vanishes.subscribe("t", "s", true);
    for number in 0..3 {
        assert_eq!(vanishes.pushed()["payload"][0], number);
    }
    drop(vanishes);
    eventually(PATIENCE, "its end is noticed", || {
        (publisher.stats()["Topics"] == json!({})).then_some(())
    });
    let mut next = BinaryClient::connect(server.messaging());
    next.subscribe("t", "s", true);
    let first = next.pushed()["payload"][0].as_u64().unwrap();
    assert!(first < MESSAGES / 2, "begins at {first}");
    for number in first + 1..MESSAGES {
        assert_eq!(next.pushed()["payload"][0], number);
    }
    publisher.ask(command::PUBLISH_TOPIC, &json!({"topic": "t", "payload": ["live"]}));
    assert_eq!(next.pushed()["payload"][0], "live");
}
