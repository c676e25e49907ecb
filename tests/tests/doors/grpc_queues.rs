//! gRPC: publish and consume one by one, and what can be seen of queues.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use boltq_proto::admin::v1::GetStatsRequest;
use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;
use boltq_proto::queue::v1::{
    ConsumeRequest, ListQueuesRequest, PeekRequest, PurgeDeadLettersRequest, PurgeQueueRequest, Queue, QueueSettings,
};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, channel, connect, duration, message};
use boltq_tests::harness::{Server, ServerOptions};
use tonic::Code;

async fn connected() -> (Server, QueueClient) {
    let server = Server::start(&ServerOptions::memory().set("queue.retry_backoff", "1ms"));
    let client = connect(server.messaging()).await;
    (server, client)
}

#[tokio::test]
async fn a_message_comes_back_with_everything_that_was_published() {
    let (_server, mut client) = connected().await;
    let published = Message {
        payload: (0..=255).collect::<Vec<u8>>().into(),
        headers: BTreeMap::from([("a".to_owned(), "1".to_owned()), ("größe".to_owned(), String::new())]),
        content_type: "image/png".into(),
        priority: 42,
        delay: None,
        ttl: duration(Duration::from_secs(60)),
        idempotency_key: String::new(),
    };
    let before = SystemTime::now();
    let id = client.put("q", published.clone()).await;
    assert_eq!(id.len(), 16);
    let delivery = client.take_one("q").await;
    assert_eq!((&delivery.message_id, &delivery.payload), (&id, &published.payload));
    assert_eq!(
        (&delivery.headers, &delivery.content_type),
        (&published.headers, &published.content_type)
    );
    assert_eq!((delivery.priority, delivery.attempts), (9, 0), "priorities are clamped");
    let published_at = SystemTime::try_from(delivery.published_at.unwrap()).unwrap();
    assert!(published_at >= before && published_at <= SystemTime::now());
    let lives = SystemTime::try_from(delivery.expires_at.unwrap())
        .unwrap()
        .duration_since(published_at)
        .unwrap();
    assert!(
        (Duration::from_secs(60)..Duration::from_millis(60_010)).contains(&lives),
        "{lives:?}"
    );
    assert!(!delivery.delivery_token.is_empty());
}

#[tokio::test]
async fn a_message_that_does_not_expire_says_so() {
    let (_server, mut client) = connected().await;
    client.put("q", message("x")).await;
    assert_eq!(client.take_one("q").await.expires_at, None);
}

#[tokio::test]
async fn an_empty_payload_is_a_message() {
    let (_server, mut client) = connected().await;
    client.put("q", message("")).await;
    assert_eq!(client.take_one("q").await.payload, "");
}

#[tokio::test]
async fn consume_takes_as_many_as_are_there_and_no_more_than_wanted() {
    let (_server, mut client) = connected().await;
    for number in 0..10_u8 {
        client.put("q", message(vec![number])).await;
    }
    assert_eq!(client.take("q", 0).await.len(), 1, "0 counts as 1");
    assert_eq!(client.take("q", 4).await.len(), 4);
    let rest = client.take("q", 1000).await;
    let payloads: Vec<u8> = rest.iter().map(|delivery| delivery.payload[0]).collect();
    assert_eq!(payloads, [5, 6, 7, 8, 9]);
    assert!(client.take("q", 1).await.is_empty());
}

/// A thousand messages of 100 kB are more than one gRPC message may hold.
#[tokio::test]
async fn consume_stays_within_the_size_of_a_grpc_message() {
    let (_server, mut client) = connected().await;
    for _ in 0..100 {
        client.put("big", message(vec![7; 100_000])).await;
    }
    let mut taken = 0;
    while taken < 100 {
        let deliveries = client.take("big", 1000).await;
        assert!(!deliveries.is_empty(), "{taken} came");
        taken += deliveries.len();
        client.done(&deliveries).await;
    }
    assert_eq!(client.look("big").await.leased, 0, "what did not fit was not leased");
}

#[tokio::test]
async fn peek_stays_within_the_size_of_a_grpc_message() {
    let (_server, mut client) = connected().await;
    for _ in 0..50 {
        client.put("big", message(vec![7; 100_000])).await;
    }
    let seen = client
        .peek(PeekRequest {
            queue: "big".into(),
            max_messages: 1000,
            ..PeekRequest::default()
        })
        .await
        .unwrap();
    assert!((1..=41).contains(&seen.into_inner().deliveries.len()));
}

#[tokio::test]
async fn the_largest_message_can_be_taken() {
    let (_server, mut client) = connected().await;
    let largest = message(vec![7; 4 * 1024 * 1024 - 64 * 1024]);
    client.put("q", largest.clone()).await;
    client.put("q", largest).await;
    assert_eq!(client.take("q", 10).await.len(), 1);
    assert_eq!(client.take("q", 10).await.len(), 1);
}

#[tokio::test]
async fn consume_creates_the_queue() {
    let (_server, mut client) = connected().await;
    assert!(client.take("new", 1).await.is_empty());
    assert_eq!(
        client.look("new").await,
        Queue {
            name: "new".into(),
            settings: Some(QueueSettings::default()),
            ..Queue::default()
        }
    );
}

#[tokio::test]
async fn the_longest_and_strangest_names_work() {
    let (_server, mut client) = connected().await;
    for name in [
        "x".repeat(200),
        "../../etc/passwd".into(),
        ".".into(),
        "日本 語/\\:*?".into(),
        " ".into(),
    ] {
        client.put(&name, message("x")).await;
        assert_eq!(client.look(&name).await.ready, 1);
        let deliveries = client.take(&name, 1).await;
        assert_eq!(client.done(&deliveries).await, 1);
    }
}

#[tokio::test]
async fn peek_shows_delivery_order_and_changes_nothing() {
    let (_server, mut client) = connected().await;
    for (payload, priority) in [("a", 0), ("b", 9), ("c", 0), ("d", 9)] {
        client
            .put(
                "q",
                Message {
                    priority,
                    ..message(payload)
                },
            )
            .await;
    }
    let peek = |max_messages| PeekRequest {
        queue: "q".into(),
        max_messages,
        ..PeekRequest::default()
    };
    for _ in 0..2 {
        let seen = client.peek(peek(3)).await.unwrap().into_inner().deliveries;
        let payloads: Vec<&[u8]> = seen.iter().map(|delivery| &delivery.payload[..]).collect();
        assert_eq!(payloads, [b"b", b"d", b"a"]);
        assert!(
            seen.iter()
                .all(|delivery| delivery.delivery_token.is_empty() && delivery.message_id.len() == 16)
        );
    }
    assert_eq!(client.look("q").await.ready, 4);
    let taken = client.take("q", 1).await;
    let seen = client.peek(peek(1)).await.unwrap().into_inner().deliveries;
    assert_eq!(
        (&taken[0].payload[..], &seen[0].payload[..]),
        (&b"b"[..], &b"d"[..]),
        "leased ones are not shown"
    );
}

#[tokio::test]
async fn peek_without_a_number_shows_ten() {
    let (_server, mut client) = connected().await;
    for _ in 0..12 {
        client.put("q", message("x")).await;
    }
    let seen = client
        .peek(PeekRequest {
            queue: "q".into(),
            max_messages: 0,
            ..PeekRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(seen.into_inner().deliveries.len(), 10);
}

#[tokio::test]
async fn purge_removes_what_is_ready_and_leaves_the_rest() {
    let (_server, mut client) = connected().await;
    for number in 0..5_u8 {
        client.put("q", message(vec![number])).await;
    }
    client
        .put(
            "q",
            Message {
                delay: duration(Duration::from_secs(3600)),
                ..message("late")
            },
        )
        .await;
    let leased = client.take("q", 2).await;
    let purged = client
        .purge_queue(PurgeQueueRequest { queue: "q".into() })
        .await
        .unwrap()
        .into_inner()
        .purged;
    assert_eq!(purged, 3);
    let queue = client.look("q").await;
    assert_eq!((queue.ready, queue.leased, queue.delayed), (0, 2, 1));
    assert_eq!(client.done(&leased).await, 2);
    assert_eq!(
        client
            .purge_queue(PurgeQueueRequest { queue: "q".into() })
            .await
            .unwrap()
            .into_inner()
            .purged,
        0
    );
}

#[tokio::test]
async fn dead_letters_are_purged_by_the_name_of_their_queue() {
    let (_server, mut client) = connected().await;
    client.put("q", message("x")).await;
    let taken = client.take("q", 1).await;
    let nack = boltq_proto::queue::v1::NackRequest {
        delivery_tokens: vec![taken[0].delivery_token.clone()],
        dead_letter: true,
        ..Default::default()
    };
    client.nack(nack).await.unwrap();
    assert_eq!(client.look("q").await.dead_letters, 1);
    let purge = || PurgeDeadLettersRequest { queue: "q".into() };
    assert_eq!(client.purge_dead_letters(purge()).await.unwrap().into_inner().purged, 1);
    assert_eq!(client.look("q").await.dead_letters, 0);
    client.take("other", 1).await;
    let none = client
        .purge_dead_letters(PurgeDeadLettersRequest { queue: "other".into() })
        .await
        .unwrap_err();
    assert_eq!(none.code(), Code::NotFound);
}

#[tokio::test]
async fn queues_are_listed_in_byte_order_page_by_page() {
    let (_server, mut client) = connected().await;
    let mut names: Vec<String> = (0..25).map(|number| format!("jobs.{number}")).collect();
    names.extend(["Jobs".to_owned(), "äther".to_owned(), "jobs".to_owned()]);
    for name in &names {
        client.take(name, 1).await;
    }
    names.sort_unstable();
    let all = list(&mut client, "", 7).await;
    assert_eq!(all, names);
    let jobs: Vec<String> = names.iter().filter(|name| name.starts_with("jobs.")).cloned().collect();
    assert_eq!(list(&mut client, "jobs.", 25).await, jobs);
    assert_eq!(list(&mut client, "nothing", 10).await, [""; 0]);
    assert_eq!(list(&mut client, "", 0).await, names, "0 counts as 100");
}

async fn list(client: &mut QueueClient, prefix: &str, page_size: u32) -> Vec<String> {
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListQueuesRequest {
            page_size,
            page_token,
            prefix: prefix.to_owned(),
            ..ListQueuesRequest::default()
        };
        let page = client.list_queues(request).await.unwrap().into_inner();
        assert!(page_size == 0 || page.queues.len() <= page_size as usize);
        names.extend(page.queues.into_iter().map(|queue| queue.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return names;
        }
    }
}

#[tokio::test]
async fn consumers_that_wait_are_counted() {
    let (server, mut client) = connected().await;
    client.take("q", 1).await;
    let mut waiting = connect(server.messaging()).await;
    let call = tokio::spawn(async move {
        let request = ConsumeRequest {
            queue: "q".into(),
            wait: duration(Duration::from_secs(30)),
            ..Default::default()
        };
        waiting.consume(request).await
    });
    let counted = |expected: u32| {
        let client = client.clone();
        move || {
            let mut client = client.clone();
            async move { (client.look("q").await.consumers == expected).then_some(()) }
        }
    };
    boltq_tests::harness::eventually_async(Duration::from_secs(5), "it is counted", counted(1)).await;
    call.abort();
    boltq_tests::harness::eventually_async(Duration::from_secs(5), "and no longer", counted(0)).await;
}

#[tokio::test]
async fn the_admin_service_adds_everything_up() {
    let (server, mut client) = connected().await;
    for _ in 0..5 {
        client.put("q", message("x")).await;
    }
    client
        .put(
            "q",
            Message {
                delay: duration(Duration::from_secs(3600)),
                ..message("late")
            },
        )
        .await;
    let taken = client.take("q", 3).await;
    client.done(&taken[..1]).await;
    let nack = boltq_proto::queue::v1::NackRequest {
        delivery_tokens: vec![taken[1].delivery_token.clone()],
        dead_letter: true,
        ..Default::default()
    };
    client.nack(nack).await.unwrap();
    let mut admin = AdminServiceClient::new(channel(server.messaging()).await.unwrap());
    let stats = admin.get_stats(GetStatsRequest::default()).await.unwrap().into_inner();
    assert_eq!(stats.queues, BTreeMap::from([("q".to_owned(), 2)]));
    assert_eq!(stats.dead_letters, BTreeMap::from([("q_dead_letter".to_owned(), 1)]));
    assert_eq!((stats.pending, stats.delayed, stats.published), (1, 1, 6));
    assert_eq!(
        (stats.consumed, stats.acked, stats.nacked, stats.dead_lettered),
        (3, 1, 1, 1)
    );
    assert_eq!(stats.expired, 0);
    assert!(!stats.version.is_empty() && stats.uptime.is_some());
    let storage = stats.storage.unwrap();
    assert_eq!((storage.mode.as_str(), storage.writable), ("memory", true));
}
