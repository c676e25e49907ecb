//! What a queue has of its own takes the place of what the server says.

use std::time::Duration;

use boltq_proto::queue::v1::{GetQueueRequest, OverflowPolicy, QueueSettings, RedriveDeadLettersRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, duration, message};
use boltq_tests::harness::{Server, ServerOptions, eventually_async};
use tonic::Code;

use super::{assert_refused, create, fail, limited, pause, subscribe, update};

const LONG: Duration = Duration::from_secs(20);

fn every_setting() -> QueueSettings {
    QueueSettings {
        max_retry: Some(0),
        retry_backoff: duration(Duration::from_millis(250)),
        retry_backoff_max: duration(Duration::from_secs(90)),
        ack_timeout: duration(Duration::from_secs(45)),
        default_ttl: duration(Duration::from_secs(3_600)),
        max_length: Some(1_000),
        max_length_bytes: Some(1 << 20),
        overflow: OverflowPolicy::DropOldest.into(),
        dead_letter_queue: "morgue".to_owned(),
        dedup_ttl: duration(Duration::from_secs(5)),
        single_active_consumer: true,
        paused: true,
    }
}

fn dead_letters_to(queue: &str) -> QueueSettings {
    QueueSettings {
        dead_letter_queue: queue.to_owned(),
        max_retry: Some(0),
        ..QueueSettings::default()
    }
}

async fn settings(client: &mut QueueClient, queue: &str) -> QueueSettings {
    client.look(queue).await.settings.unwrap()
}

#[tokio::test]
async fn a_queue_is_created_once_and_shows_what_it_has() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    assert!(create(&mut client, "q", every_setting()).await.unwrap());
    assert!(!create(&mut client, "q", every_setting()).await.unwrap());
    assert_eq!(settings(&mut client, "q").await, every_setting());
    let other = create(&mut client, "q", limited(5)).await;
    assert_refused(other, Code::AlreadyExists, "QUEUE_EXISTS");
    client.put("plain", message("x")).await;
    assert_eq!(settings(&mut client, "plain").await, QueueSettings::default());
    assert!(!create(&mut client, "plain", QueueSettings::default()).await.unwrap());
}

#[tokio::test]
async fn what_no_setting_can_be_is_refused_with_what_is_allowed() {
    let server = Server::start(&ServerOptions::memory().set("queue.retry_backoff_max", "10s"));
    let mut client = connect(server.messaging()).await;
    let unnamed = create(&mut client, "", QueueSettings::default()).await;
    assert_refused(unnamed, Code::InvalidArgument, "INVALID_NAME");
    let wrong = [
        (limited(0), "max_length is 0; 1 to"),
        (
            QueueSettings {
                ack_timeout: duration(Duration::from_millis(9)),
                ..QueueSettings::default()
            },
            "ack_timeout is 9 ms; 10 ms to",
        ),
        (
            QueueSettings {
                retry_backoff: duration(Duration::from_secs(11)),
                ..QueueSettings::default()
            },
            "retry_backoff is 11000 ms and retry_backoff_max 10000 ms",
        ),
        (
            dead_letters_to("q"),
            "dead_letter_queue is \"q\"; dead letters that go there would come back",
        ),
        (dead_letters_to("a\nb"), "dead_letter_queue "),
    ];
    for (settings, text) in wrong {
        let status = assert_refused(
            create(&mut client, "q", settings).await,
            Code::InvalidArgument,
            "INVALID_ARGUMENT",
        );
        assert!(status.message().starts_with(text), "{status}");
    }
    let request = GetQueueRequest {
        queue: "q".to_owned(),
        ..GetQueueRequest::default()
    };
    assert_refused(client.get_queue(request).await, Code::NotFound, "QUEUE_NOT_FOUND");
}

#[tokio::test]
async fn an_update_changes_what_its_mask_names_and_nothing_else() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let missing = update(&mut client, "q", limited(1), &[]).await;
    assert_refused(missing, Code::NotFound, "QUEUE_NOT_FOUND");
    create(&mut client, "q", every_setting()).await.unwrap();
    // Without a mask, what is set.
    let updated = update(&mut client, "q", limited(7), &[]).await.unwrap();
    let expected = QueueSettings {
        max_length: Some(7),
        ..every_setting()
    };
    assert_eq!(updated.settings.unwrap(), expected);
    // What the mask names and the request leaves out is the server's again.
    let mask = ["paused", "ack_timeout", "overflow", "dead_letter_queue"];
    update(&mut client, "q", limited(9), &mask).await.unwrap();
    let expected = QueueSettings {
        paused: false,
        ack_timeout: None,
        overflow: OverflowPolicy::Unspecified.into(),
        dead_letter_queue: String::new(),
        ..expected
    };
    assert_eq!(settings(&mut client, "q").await, expected);
    let unknown = update(&mut client, "q", limited(9), &["max_lenght"]).await;
    assert_refused(unknown, Code::InvalidArgument, "INVALID_ARGUMENT");
}

#[tokio::test]
async fn settings_survive_a_crash() {
    let mut server = Server::start(&ServerOptions::disk());
    let mut client = connect(server.messaging()).await;
    create(&mut client, "q", every_setting()).await.unwrap();
    create(
        &mut client,
        "mortal",
        QueueSettings {
            default_ttl: duration(Duration::from_secs(3_600)),
            ..limited(2)
        },
    )
    .await
    .unwrap();
    server.kill();
    server.restart();
    let mut client = connect(server.messaging()).await;
    assert_eq!(settings(&mut client, "q").await, every_setting());
    client.put("mortal", message("x")).await;
    let taken = client.take_one("mortal").await;
    assert!(taken.expires_at.is_some());
}

#[tokio::test]
async fn failures_are_counted_and_buried_as_the_queue_says() {
    let server = Server::start(&ServerOptions::memory().set("queue.max_retry", 5));
    let mut client = connect(server.messaging()).await;
    for queue in ["a", "b"] {
        create(&mut client, queue, dead_letters_to("morgue")).await.unwrap();
        client.put(queue, message(queue)).await;
        let token = client.take_one(queue).await.delivery_token;
        fail(&mut client, token).await;
        assert_eq!(client.look(queue).await.ready, 0);
    }
    assert_eq!(client.look("a").await.dead_letters, 2);
    assert_eq!(client.look("morgue").await.ready, 2);
    // Of those that share it, each gets its own back.
    let request = RedriveDeadLettersRequest {
        queue: "b".to_owned(),
        ..RedriveDeadLettersRequest::default()
    };
    let mut answers = client.redrive_dead_letters(request).await.unwrap().into_inner();
    while answers.message().await.unwrap().is_some() {}
    let back = client.take_one("b").await;
    assert_eq!((&back.payload[..], back.attempts), (&b"b"[..], 0));
    assert_eq!(
        (client.look("a").await.ready, client.look("morgue").await.ready),
        (0, 1)
    );
    assert_eq!(client.take_one("morgue").await.headers["x-death-queue"], "a");
}

#[tokio::test]
async fn leases_and_pauses_last_as_long_as_the_queue_says() {
    let server = Server::start(
        &ServerOptions::memory()
            .set("queue.ack_timeout", "1h")
            .set("queue.retry_backoff", "30s"),
    );
    let mut client = connect(server.messaging()).await;
    let short = QueueSettings {
        ack_timeout: duration(Duration::from_millis(50)),
        retry_backoff: duration(Duration::ZERO),
        ..QueueSettings::default()
    };
    create(&mut client, "q", short).await.unwrap();
    client.put("q", message("x")).await;
    assert_eq!(client.take_one("q").await.attempts, 0);
    let again = eventually_async(LONG, "the lease ends", || {
        let mut client = client.clone();
        async move { client.take("q", 1).await.pop() }
    });
    assert!(again.await.attempts >= 1);
}

#[tokio::test]
async fn messages_without_a_time_to_live_get_that_of_the_queue() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let mortal = QueueSettings {
        default_ttl: duration(Duration::from_secs(1_000)),
        ..QueueSettings::default()
    };
    create(&mut client, "q", mortal).await.unwrap();
    client.put("q", message("queue")).await;
    let own = Message {
        ttl: duration(Duration::from_secs(5_000)),
        idempotency_key: "k".to_owned(),
        ..message("own")
    };
    client.put("q", own).await;
    client.put("other", message("none")).await;
    let lives = |delivery: &boltq_proto::queue::v1::Delivery| {
        let (from, to) = (delivery.published_at.unwrap(), delivery.expires_at?);
        Some(to.seconds - from.seconds)
    };
    let taken = client.take("q", 9).await;
    let lives: Vec<_> = taken.iter().chain(&client.take("other", 9).await).map(lives).collect();
    let [Some(1_000 | 1_001), Some(5_000 | 5_001), None] = lives[..] else {
        panic!("{lives:?}");
    };
}

#[tokio::test]
async fn a_key_is_forgotten_when_the_queue_says() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let forgetful = QueueSettings {
        dedup_ttl: duration(Duration::from_secs(1)),
        ..QueueSettings::default()
    };
    create(&mut client, "q", forgetful).await.unwrap();
    let keyed = || Message {
        idempotency_key: "k".to_owned(),
        ..message("x")
    };
    let first = client.put("q", keyed()).await;
    let other = client.put("other", keyed()).await;
    eventually_async(LONG, "the key is forgotten", || {
        let (mut client, first) = (client.clone(), first.clone());
        async move { (client.put("q", keyed()).await != first).then_some(()) }
    })
    .await;
    assert_eq!(client.put("other", keyed()).await, other);
}

#[tokio::test]
async fn a_paused_queue_takes_messages_and_delivers_them_when_it_goes_on() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    client.put("q", message("1")).await;
    let held = client.take("q", 1).await;
    pause(&mut client, "q", true).await;
    client.put("q", message("2")).await;
    assert!(client.take("q", 9).await.is_empty());
    assert_eq!(client.done(&held).await, 1);
    let (_requests, mut answers) = subscribe(&mut client, "q", 9).await;
    eventually_async(LONG, "the consumer waits", || {
        let mut client = client.clone();
        async move { (client.look("q").await.consumers == 1).then_some(()) }
    })
    .await;
    assert_eq!(client.look("q").await.leased, 0);
    pause(&mut client, "q", false).await;
    let answer = answers.message().await.unwrap().unwrap();
    assert_eq!(&answer.deliveries[0].payload[..], b"2");
}
