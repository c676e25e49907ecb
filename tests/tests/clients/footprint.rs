//! What a client takes of memory, and what it leaves behind.

use std::time::Duration;

use boltq::{Client, Error, Message, PublisherOptions, SubscribeOptions};
use boltq_tests::harness::{ProcessStat, Server, ServerOptions, eventually_async, within};

const WITHIN: Duration = Duration::from_secs(60);

fn client(server: &Server) -> Client {
    Client::builder()
        .address(server.messaging().to_string())
        .build()
        .expect("a client")
}

#[tokio::test]
async fn a_thousand_clients_that_come_and_go_leave_nothing() {
    let server = Server::start(&ServerOptions::memory());
    let this = ProcessStat::of(std::process::id());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let cycle = async || {
        let client = client(&server);
        let queue = client.queue("cycle");
        let publisher = queue.publisher(PublisherOptions::default());
        publisher
            .publish("x")
            .await
            .expect("room")
            .await
            .expect("a confirmation");
        publisher.close().await;
        let mut subscription = queue.subscribe(SubscribeOptions::default());
        let delivery = subscription.next().await.expect("a message").expect("no failure");
        delivery.ack().await.expect("acknowledged");
    };
    cycle().await;
    let settled = || async { (tasks() == 0).then_some(()) };
    eventually_async(WITHIN, "the first client is gone", settled).await;
    let files = this.open_files();
    for _ in 0..1_000 {
        within(WITHIN, "a cycle", cycle()).await;
    }
    eventually_async(WITHIN, "all tasks are gone", settled).await;
    let back = || async { (this.open_files() <= files).then_some(()) };
    eventually_async(WITHIN, "all connections are closed", back).await;
    let left = || async { (server.stat().open_files() < 100).then_some(()) };
    eventually_async(WITHIN, "the server has no connections either", left).await;
}

#[tokio::test]
async fn a_subscription_that_nobody_reads_takes_no_more_than_its_window() {
    const MESSAGE_BYTES: usize = 256 << 10;
    const MESSAGES: usize = 400;
    const WINDOW_BYTES: u32 = 1 << 20;
    // A response, the window, and what allocators keep; the backlog has 100 MiB.
    const GROWTH_MAX: u64 = 40 << 20;
    let server = Server::start(&ServerOptions::disk().set("storage.sync", "never"));
    let client = Client::builder()
        .address(server.messaging().to_string())
        .window_bytes(WINDOW_BYTES)
        .build()
        .expect("a client");
    let queue = client.queue("large");
    let publisher = queue.publisher(PublisherOptions {
        max_bytes: 4 << 20,
        ..PublisherOptions::default()
    });
    for _ in 0..MESSAGES {
        let sent = publisher.publish(vec![b'x'; MESSAGE_BYTES]).await.expect("room");
        drop(sent);
    }
    publisher.close().await;
    assert_eq!(queue.get().await.expect("the queue").ready, MESSAGES as u64);
    let this = ProcessStat::of(std::process::id());
    let before = this.rss_bytes();
    let mut subscription = queue.subscribe(SubscribeOptions {
        max_in_flight: 100_000,
        ..SubscribeOptions::default()
    });
    subscription.next().await.expect("a message").expect("no failure");
    // Until the server leases no more: then it is held back, or has nothing left.
    let (mut last, mut same) = (0, 0);
    while same < 20 {
        let leased = queue.get().await.expect("the queue").leased;
        same = if leased == last { same + 1 } else { 0 };
        last = leased;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(last < MESSAGES as u64, "the server was held back: {last}");
    let growth = this.rss_bytes().saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{growth} bytes more");
    // And all of them come when somebody reads.
    let rest = async {
        for _ in 1..MESSAGES {
            let delivery = subscription.next().await.expect("a message").expect("no failure");
            assert_eq!(delivery.payload().len(), MESSAGE_BYTES);
        }
    };
    within(WITHIN, "the rest", rest).await;
}

#[tokio::test]
async fn publishing_waits_when_too_much_is_on_its_way() {
    let server = Server::start(&ServerOptions::memory());
    let publisher = client(&server).queue("full").publisher(PublisherOptions {
        max_messages: 2,
        max_bytes: 1_000,
        ..PublisherOptions::default()
    });
    // Its size is more than all there is room for, so it goes alone.
    let large = publisher.publish(vec![0; 10_000]).await.expect("room");
    let next = publisher
        .publish("small")
        .await
        .expect("room when the first is confirmed");
    large.await.expect("a confirmation");
    next.await.expect("a confirmation");
    let huge = publisher.publish(Message::new(vec![0; 5 << 20])).await;
    assert!(matches!(huge, Err(Error::Usage(_))), "{huge:?}");
    within(WITHIN, "nothing is left", publisher.close()).await;
}
