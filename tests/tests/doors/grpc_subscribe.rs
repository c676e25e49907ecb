//! gRPC: Subscribe.

use std::time::{Duration, Instant};

use boltq_proto::queue::v1::subscribe_request::Request as Kind;
use boltq_proto::queue::v1::{
    Delivery, SettleFailureReason, SubscribeAck, SubscribeExtend, SubscribeInit, SubscribeNack, SubscribeRequest,
    SubscribeResponse, SubscribeStop,
};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, duration, message, reason};
use boltq_tests::harness::{Server, ServerOptions, eventually_async, within};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

const DEADLINE: Duration = Duration::from_secs(10);
/// Long enough for something that must not come to come.
const QUIET: Duration = Duration::from_millis(300);

struct Subscription {
    requests: mpsc::Sender<SubscribeRequest>,
    responses: Streaming<SubscribeResponse>,
}

impl Subscription {
    async fn open(client: &mut QueueClient, init: SubscribeInit) -> Self {
        let (requests, outbound) = mpsc::channel(64);
        requests
            .send(SubscribeRequest {
                request: Some(Kind::Init(init)),
            })
            .await
            .unwrap();
        let opened = client
            .subscribe(ReceiverStream::new(outbound))
            .await
            .expect("a subscription");
        Self {
            requests,
            responses: opened.into_inner(),
        }
    }

    async fn send(&self, kind: Kind) {
        self.requests
            .send(SubscribeRequest { request: Some(kind) })
            .await
            .unwrap();
    }

    async fn next(&mut self) -> Result<Option<SubscribeResponse>, Status> {
        within(DEADLINE, "a response", self.responses.message()).await
    }

    /// The next `count` deliveries. A settlement between them is a mistake of the test.
    async fn take(&mut self, count: usize) -> Vec<Delivery> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let response = self.next().await.unwrap().expect("the stream goes on");
            assert!(response.settled.is_empty(), "{:?}", response.settled);
            taken.extend(response.deliveries);
        }
        assert_eq!(taken.len(), count);
        taken
    }

    async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(QUIET, self.responses.message()).await.is_err()
    }
}

fn init(queue: &str, max_in_flight: u32, max_batch: u32) -> SubscribeInit {
    SubscribeInit {
        queue: queue.to_owned(),
        max_in_flight,
        max_batch,
        lease: None,
    }
}

fn ack(deliveries: &[Delivery], request_id: u64) -> Kind {
    Kind::Ack(SubscribeAck {
        delivery_tokens: tokens(deliveries),
        request_id,
    })
}

fn tokens(deliveries: &[Delivery]) -> Vec<Bytes> {
    deliveries
        .iter()
        .map(|delivery| delivery.delivery_token.clone())
        .collect()
}

async fn connected() -> (Server, QueueClient) {
    let server = Server::start(&ServerOptions::memory().set("queue.retry_backoff", "1ms"));
    let client = connect(server.messaging()).await;
    (server, client)
}

async fn fill(client: &mut QueueClient, count: u8) {
    for number in 0..count {
        client.put("q", message(vec![number])).await;
    }
}

#[tokio::test]
async fn messages_that_wait_and_messages_that_come_are_delivered_in_order() {
    let (_server, mut client) = connected().await;
    fill(&mut client, 3).await;
    let mut subscription = Subscription::open(&mut client, init("q", 0, 0)).await;
    let waiting: Vec<u8> = subscription
        .take(3)
        .await
        .iter()
        .map(|delivery| delivery.payload[0])
        .collect();
    assert_eq!(waiting, [0, 1, 2]);
    for number in 3..6 {
        client.put("q", message(vec![number])).await;
        assert_eq!(subscription.take(1).await[0].payload[0], number);
    }
}

#[tokio::test]
async fn no_more_than_max_in_flight_are_out_at_a_time() {
    let (_server, mut client) = connected().await;
    fill(&mut client, 10).await;
    let mut subscription = Subscription::open(&mut client, init("q", 4, 0)).await;
    let first = subscription.take(4).await;
    assert!(subscription.is_quiet().await, "four are out");
    assert_eq!(client.look("q").await.leased, 4);
    subscription.send(ack(&first[..2], 0)).await;
    let second = subscription.take(2).await;
    assert_eq!(
        second.iter().map(|delivery| delivery.payload[0]).collect::<Vec<_>>(),
        [4, 5]
    );
    assert!(subscription.is_quiet().await);
    let nack = SubscribeNack {
        delivery_tokens: tokens(&first[2..]),
        dead_letter: true,
        ..Default::default()
    };
    subscription.send(Kind::Nack(nack)).await;
    assert_eq!(subscription.take(2).await.len(), 2, "a nack makes room too");
}

#[tokio::test]
async fn no_response_holds_more_than_max_batch() {
    let (_server, mut client) = connected().await;
    fill(&mut client, 20).await;
    let mut subscription = Subscription::open(&mut client, init("q", 100, 3)).await;
    let mut taken = 0;
    while taken < 20 {
        let deliveries = subscription.next().await.unwrap().unwrap().deliveries;
        assert!((1..=3).contains(&deliveries.len()), "{}", deliveries.len());
        taken += deliveries.len();
    }
}

#[tokio::test]
async fn responses_stay_within_the_size_of_a_grpc_message() {
    let (_server, mut client) = connected().await;
    for _ in 0..100 {
        client.put("q", message(vec![7; 100_000])).await;
    }
    let mut subscription = Subscription::open(&mut client, init("q", 1000, 1000)).await;
    assert_eq!(subscription.take(100).await.len(), 100);
}

#[tokio::test]
async fn settlements_with_a_number_are_answered_and_those_without_are_not() {
    let (_server, mut client) = connected().await;
    fill(&mut client, 4).await;
    let mut subscription = Subscription::open(&mut client, init("q", 10, 0)).await;
    let taken = subscription.take(4).await;
    subscription.send(ack(&taken[..1], 0)).await;
    subscription.send(ack(&taken[1..2], 7)).await;
    let again = taken[1].clone();
    let settled = subscription.next().await.unwrap().unwrap().settled;
    assert_eq!(settled.len(), 1);
    assert_eq!((settled[0].request_id, settled[0].failures.len()), (7, 0));
    subscription.send(ack(&[again.clone(), taken[2].clone()], 8)).await;
    let settled = subscription.next().await.unwrap().unwrap().settled;
    assert_eq!((settled[0].request_id, settled[0].failures.len()), (8, 1));
    let failure = &settled[0].failures[0];
    assert_eq!(
        (&failure.token, failure.reason()),
        (&again.delivery_token, SettleFailureReason::NotFound)
    );
    let malformed = SubscribeAck {
        delivery_tokens: vec![Bytes::from_static(b"?")],
        request_id: 9,
    };
    subscription.send(Kind::Ack(malformed)).await;
    let settled = subscription.next().await.unwrap().unwrap().settled;
    assert_eq!(settled[0].failures[0].reason(), SettleFailureReason::Malformed);
    assert_eq!(client.look("q").await.leased, 1);
}

#[tokio::test]
async fn a_nack_brings_the_message_back_after_its_delay() {
    let (_server, mut client) = connected().await;
    fill(&mut client, 1).await;
    let mut subscription = Subscription::open(&mut client, init("q", 10, 0)).await;
    let taken = subscription.take(1).await;
    let delay = Duration::from_millis(500);
    let nacked = Instant::now();
    let nack = SubscribeNack {
        delivery_tokens: tokens(&taken),
        delay: duration(delay),
        ..Default::default()
    };
    subscription.send(Kind::Nack(nack)).await;
    let again = subscription.take(1).await;
    assert_eq!((again[0].attempts, &again[0].message_id), (1, &taken[0].message_id));
    assert!(
        (delay..Duration::from_millis(1000)).contains(&nacked.elapsed()),
        "{:?}",
        nacked.elapsed()
    );
}

#[tokio::test]
async fn leases_are_extended_on_the_stream() {
    let (_server, mut client) = connected().await;
    fill(&mut client, 1).await;
    let short = SubscribeInit {
        lease: duration(Duration::from_secs(1)),
        ..init("q", 1, 0)
    };
    let mut subscription = Subscription::open(&mut client, short).await;
    let taken = subscription.take(1).await;
    let lease = duration(Duration::from_secs(60));
    let extend = SubscribeExtend {
        delivery_tokens: tokens(&taken),
        request_id: 3,
        lease,
    };
    subscription.send(Kind::Extend(extend)).await;
    let settled = subscription.next().await.unwrap().unwrap().settled;
    assert_eq!((settled[0].request_id, settled[0].failures.len()), (3, 0));
    tokio::time::sleep(Duration::from_millis(2300)).await;
    assert!(subscription.is_quiet().await, "it is not delivered again");
    assert_eq!(client.look("q").await.leased, 1);
}

#[tokio::test]
async fn a_lease_that_times_out_makes_room_and_comes_again() {
    let (_server, mut client) = connected().await;
    fill(&mut client, 1).await;
    let short = SubscribeInit {
        lease: duration(Duration::from_secs(1)),
        ..init("q", 1, 0)
    };
    let mut subscription = Subscription::open(&mut client, short).await;
    let first = subscription.take(1).await;
    let second = subscription.take(1).await;
    assert_eq!((second[0].attempts, &second[0].message_id), (1, &first[0].message_id));
}

#[tokio::test]
async fn what_was_not_settled_goes_to_others_at_once_when_the_stream_ends() {
    let (server, mut client) = connected().await;
    fill(&mut client, 5).await;
    let mut subscription = Subscription::open(&mut client, init("q", 3, 0)).await;
    let taken = subscription.take(3).await;
    subscription.send(ack(&taken[..1], 1)).await;
    subscription.next().await.unwrap().unwrap();
    let mut other = connect(server.messaging()).await;
    drop(subscription);
    let released = eventually_async(Duration::from_secs(2), "the leases end", || {
        let mut client = other.clone();
        async move { (client.look("q").await.leased == 0).then_some(()) }
    });
    released.await;
    let again = other.take("q", 10).await;
    assert_eq!(
        again.iter().map(|delivery| delivery.payload[0]).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    assert!(
        again.iter().all(|delivery| delivery.attempts == 0),
        "no attempt was counted"
    );
}

#[tokio::test]
async fn a_client_that_finishes_sending_gets_its_settlements_and_the_end() {
    let (_server, mut client) = connected().await;
    fill(&mut client, 2).await;
    let mut subscription = Subscription::open(&mut client, init("q", 2, 0)).await;
    let taken = subscription.take(2).await;
    subscription.send(ack(&taken, 1)).await;
    let Subscription {
        requests,
        mut responses,
    } = subscription;
    drop(requests);
    let mut settled = 0;
    while let Some(response) = within(DEADLINE, "the end of the stream", responses.message())
        .await
        .unwrap()
    {
        settled += response.settled.len();
    }
    assert_eq!(settled, 1);
    let queue = client.look("q").await;
    assert_eq!((queue.ready, queue.leased, queue.consumers), (0, 0, 0));
}

#[tokio::test]
async fn a_stream_has_to_begin_with_init_and_have_no_second_one() {
    let (_server, mut client) = connected().await;
    for requests in [
        vec![],
        vec![SubscribeRequest { request: None }],
        vec![SubscribeRequest {
            request: Some(ack(&[], 1)),
        }],
        vec![SubscribeRequest {
            request: Some(Kind::Init(init("", 0, 0))),
        }],
        vec![SubscribeRequest {
            request: Some(Kind::Init(init("q", 100_001, 0))),
        }],
        vec![SubscribeRequest {
            request: Some(Kind::Init(init("q", 0, 1001))),
        }],
        vec![
            SubscribeRequest {
                request: Some(Kind::Init(init("q", 0, 0)))
            };
            2
        ],
    ] {
        let told = format!("{requests:?}");
        // The stream of requests stays open: the refusal must not wait for its end.
        let open = tokio_stream::StreamExt::chain(tokio_stream::iter(requests), tokio_stream::pending());
        let opened = within(DEADLINE, "a refusal", client.subscribe(open));
        let empty = told == "[]";
        if empty {
            // Nothing was said yet, so nothing is wrong yet.
            drop(tokio::time::timeout(QUIET, opened).await);
            continue;
        }
        let status = match opened.await {
            Err(status) => status,
            Ok(response) => within(DEADLINE, "a refusal", response.into_inner().message())
                .await
                .unwrap_err(),
        };
        assert_eq!(status.code(), Code::InvalidArgument, "{told}");
        assert!(!reason(&status).is_empty(), "{told}");
    }
}

#[tokio::test]
async fn two_subscribers_share_a_queue_and_no_message_comes_twice() {
    let (server, mut client) = connected().await;
    let mut clients = [connect(server.messaging()).await, connect(server.messaging()).await];
    let mut first = Subscription::open(&mut clients[0], init("q", 8, 0)).await;
    let mut second = Subscription::open(&mut clients[1], init("q", 8, 0)).await;
    fill(&mut client, 200).await;
    let (mut seen, mut counts) = (vec![false; 200], [0; 2]);
    while seen.contains(&false) {
        let (index, response) = tokio::select! {
            response = first.responses.message() => (0, response),
            response = second.responses.message() => (1, response),
            () = tokio::time::sleep(DEADLINE) => panic!("messages are missing"),
        };
        let deliveries = response.unwrap().unwrap().deliveries;
        for delivery in &deliveries {
            assert!(
                !std::mem::replace(&mut seen[usize::from(delivery.payload[0])], true),
                "twice"
            );
        }
        counts[index] += deliveries.len();
        [&first, &second][index].send(ack(&deliveries, 0)).await;
    }
    assert!(counts.iter().all(|count| *count > 0), "both got something: {counts:?}");
}

/// Nobody has to wait for the grace of a stop: streams are told, and a long poll ends with nothing.
#[tokio::test]
async fn a_stop_tells_who_waits_and_does_not_wait_for_them() {
    let mut server = Server::start(&ServerOptions::disk());
    let mut client = connect(server.messaging()).await;
    let mut subscription = Subscription::open(&mut client, init("q", 10, 10)).await;
    let mut full = Subscription::open(&mut client, init("other", 1, 1)).await;
    client.put("other", message("held")).await;
    full.take(1).await;
    let mut poller = client.clone();
    let poll = tokio::spawn(async move {
        let request = boltq_proto::queue::v1::ConsumeRequest {
            queue: "q".into(),
            wait: duration(Duration::from_secs(60)),
            ..Default::default()
        };
        poller.consume(request).await
    });
    let mut looker = client.clone();
    eventually_async(DEADLINE, "both wait", || {
        let mut looker = looker.clone();
        async move { (looker.look("q").await.consumers == 2).then_some(()) }
    })
    .await;
    looker.look("q").await;
    let began = Instant::now();
    server.signal(rustix::process::Signal::TERM);
    for subscription in [&mut subscription, &mut full] {
        let status = subscription.next().await.unwrap_err();
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::Unavailable, "STOPPED"),
            "{status:?}"
        );
    }
    let polled = within(DEADLINE, "the poll", poll).await.unwrap().unwrap().into_inner();
    assert!(polled.deliveries.is_empty());
    drop((client, looker, subscription, full));
    let status = eventually_async(DEADLINE, "it stops", || std::future::ready(server.exited())).await;
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "it took {:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_consumer_that_stops_keeps_what_it_works_on_and_others_get_what_it_releases_at_once() {
    let (_server, mut client) = connected().await;
    fill(&mut client, 3).await;
    let mut subscription = Subscription::open(&mut client, init("q", 2, 0)).await;
    let held = subscription.take(2).await;
    subscription.send(Kind::Stop(SubscribeStop {})).await;
    let release = SubscribeNack {
        delivery_tokens: tokens(&held[1..]),
        request_id: 1,
        release: true,
        ..SubscribeNack::default()
    };
    subscription.send(Kind::Nack(release)).await;
    let answer = subscription.next().await.unwrap().expect("the stream goes on");
    assert!(
        answer.deliveries.is_empty() && answer.settled[0].failures.is_empty(),
        "{answer:?}"
    );
    // At its old place, and as it was.
    for number in 1..3 {
        let taken = client.take_one("q").await;
        assert_eq!((taken.payload[0], taken.attempts), (number, 0));
    }
    subscription.send(ack(&held[..1], 2)).await;
    let answer = subscription.next().await.unwrap().expect("the stream goes on");
    assert!(answer.settled[0].failures.is_empty(), "its lease went on: {answer:?}");
    client.put("q", message("more")).await;
    assert!(subscription.is_quiet().await, "nothing is delivered any more");
}
