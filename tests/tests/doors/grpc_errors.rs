//! gRPC: every refusal has its documented code, an `ErrorInfo` of domain "boltq", and a text that says what to do.

use std::time::Duration;

use boltq_proto::queue::v1::{
    AckRequest, ConsumeRequest, ExtendLeaseRequest, GetQueueRequest, ListQueuesRequest, NackRequest, PeekRequest,
    PublishRequest, PurgeDeadLettersRequest, PurgeQueueRequest, SubscribeInit, SubscribeRequest, subscribe_request,
};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueClient, connect, duration, message, reason};
use boltq_tests::harness::{Server, ServerOptions};
use bytes::Bytes;
use tonic::{Code, Response, Status};

async fn connected() -> (Server, QueueClient) {
    let server = Server::start(&ServerOptions::memory());
    let client = connect(server.messaging()).await;
    (server, client)
}

#[track_caller]
fn refused<T>(result: Result<Response<T>, Status>, code: Code, why: &str) {
    let Err(status) = result else {
        panic!("accepted; expected {why}")
    };
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (code, why),
        "{}",
        status.message()
    );
    assert!(!status.message().is_empty());
}

fn publish(queue: &str, message: Message) -> PublishRequest {
    PublishRequest {
        queue: queue.to_owned(),
        message: Some(message),
    }
}

#[tokio::test]
async fn names_are_checked_by_every_call_that_takes_one() {
    let (_server, mut client) = connected().await;
    for name in ["", "a\0b", "tab\there", &"x".repeat(201)] {
        let queue = || name.to_owned();
        let (code, why) = (Code::InvalidArgument, "INVALID_NAME");
        refused(client.publish(publish(name, message("x"))).await, code, why);
        refused(
            client
                .consume(ConsumeRequest {
                    queue: queue(),
                    ..Default::default()
                })
                .await,
            code,
            why,
        );
        let peek = PeekRequest {
            queue: queue(),
            max_messages: 1,
            ..PeekRequest::default()
        };
        refused(client.peek(peek).await, code, why);
        let purge = PurgeQueueRequest { queue: queue() };
        refused(client.purge_queue(purge).await, code, why);
        let purge = PurgeDeadLettersRequest { queue: queue() };
        refused(client.purge_dead_letters(purge).await, code, why);
        let get = named(queue());
        refused(client.get_queue(get).await, code, why);
        refused(subscribe(&mut client, name).await, code, why);
    }
}

fn named(queue: String) -> GetQueueRequest {
    GetQueueRequest {
        queue,
        ..GetQueueRequest::default()
    }
}

async fn subscribe(client: &mut QueueClient, queue: &str) -> Result<Response<()>, Status> {
    let init = SubscribeInit {
        queue: queue.to_owned(),
        ..Default::default()
    };
    let requests = tokio_stream::iter([SubscribeRequest {
        request: Some(subscribe_request::Request::Init(init)),
    }]);
    client.subscribe(requests).await.map(|response| response.map(drop))
}

/// Their name is longer than anybody could make one.
#[tokio::test]
async fn the_dead_letters_of_a_queue_with_the_longest_name_can_be_looked_at_and_purged() {
    let (_server, mut client) = connected().await;
    let longest = || "x".repeat(200);
    client.publish(publish(&longest(), message("poison"))).await.unwrap();
    let purge = || PurgeDeadLettersRequest { queue: longest() };
    refused(
        client.purge_dead_letters(purge()).await,
        Code::NotFound,
        "DEAD_LETTERS_NOT_FOUND",
    );
    let consume = ConsumeRequest {
        queue: longest(),
        ..Default::default()
    };
    let leased = client.consume(consume).await.unwrap().into_inner();
    let nack = NackRequest {
        delivery_tokens: vec![leased.deliveries[0].delivery_token.clone()],
        dead_letter: true,
        ..Default::default()
    };
    assert_eq!(client.nack(nack).await.unwrap().into_inner().settled, 1);
    let dead = format!("{}_dead_letter", longest());
    let get = named(dead.clone());
    let queue = client.get_queue(get).await.unwrap().into_inner().queue.unwrap();
    assert_eq!((queue.name.as_str(), queue.ready), (dead.as_str(), 1));
    let peek = PeekRequest {
        queue: dead,
        max_messages: 1,
        ..PeekRequest::default()
    };
    assert_eq!(client.peek(peek).await.unwrap().into_inner().deliveries.len(), 1);
    let purged = client.purge_dead_letters(purge()).await.unwrap().into_inner();
    assert_eq!(purged.purged, 1);
}

#[tokio::test]
async fn calls_about_a_queue_that_does_not_exist_say_not_found_and_create_nothing() {
    let (_server, mut client) = connected().await;
    let queue = || "nowhere".to_owned();
    let (code, why) = (Code::NotFound, "QUEUE_NOT_FOUND");
    refused(
        client
            .peek(PeekRequest {
                queue: queue(),
                max_messages: 0,
                ..PeekRequest::default()
            })
            .await,
        code,
        why,
    );
    refused(
        client.purge_queue(PurgeQueueRequest { queue: queue() }).await,
        code,
        why,
    );
    refused(client.get_queue(named(queue())).await, code, why);
    let dead = client
        .purge_dead_letters(PurgeDeadLettersRequest { queue: queue() })
        .await;
    assert_eq!(dead.unwrap_err().code(), Code::NotFound);
    assert!(
        client
            .list_queues(ListQueuesRequest::default())
            .await
            .unwrap()
            .into_inner()
            .queues
            .is_empty()
    );
}

#[tokio::test]
async fn a_publish_without_a_message_is_refused() {
    let (_server, mut client) = connected().await;
    let request = PublishRequest {
        queue: "q".into(),
        message: None,
    };
    refused(client.publish(request).await, Code::InvalidArgument, "INVALID_ARGUMENT");
}

#[tokio::test]
async fn a_payload_that_claims_to_be_json_has_to_be_one_json_value() {
    let (_server, mut client) = connected().await;
    let json = |payload: &'static [u8]| Message {
        content_type: "application/json".into(),
        ..message(payload)
    };
    for payload in [&b""[..], b"{", b"{} {}", b"nonsense", b"\"\xff\""] {
        let status = client.publish(publish("q", json(payload))).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(!reason(&status).is_empty());
    }
    client
        .publish(publish("q", json(br#" {"a":[1,null]} "#)))
        .await
        .unwrap();
    let other = Message {
        content_type: "text/plain".into(),
        ..message(&b"\xff{"[..])
    };
    client.publish(publish("q", other)).await.unwrap();
}

#[tokio::test]
async fn headers_over_64_kib_are_refused() {
    let (_server, mut client) = connected().await;
    let with = |bytes: usize| Message {
        headers: [("k".to_owned(), "v".repeat(bytes - 1))].into(),
        ..message("x")
    };
    client.publish(publish("q", with(64 * 1024))).await.unwrap();
    refused(
        client.publish(publish("q", with(64 * 1024 + 1))).await,
        Code::InvalidArgument,
        "HEADERS_TOO_LARGE",
    );
}

#[tokio::test]
async fn messages_over_the_limit_are_refused_by_their_size() {
    let (_server, mut client) = connected().await;
    let largest = 4 * 1024 * 1024 - 64 * 1024;
    client.publish(publish("q", message(vec![0; largest]))).await.unwrap();
    let refused_one = client.publish(publish("q", message(vec![0; largest + 1]))).await;
    refused(refused_one, Code::InvalidArgument, "MESSAGE_TOO_LARGE");
    // Beyond the size of a gRPC message the transport refuses it, before the service sees it.
    let status = client
        .publish(publish("q", message(vec![0; 5 * 1024 * 1024])))
        .await
        .unwrap_err();
    assert!(
        matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted),
        "{status:?}"
    );
}

#[tokio::test]
async fn numbers_outside_their_ranges_are_refused() {
    let (_server, mut client) = connected().await;
    let consume = |max_messages, wait, lease| ConsumeRequest {
        queue: "q".into(),
        max_messages,
        wait,
        lease,
    };
    let (code, why) = (Code::InvalidArgument, "INVALID_ARGUMENT");
    let seconds = |seconds| duration(Duration::from_secs(seconds));
    let negative = Some(prost_types::Duration { seconds: -1, nanos: 0 });
    refused(client.consume(consume(1001, None, None)).await, code, why);
    refused(client.consume(consume(1, seconds(61), None)).await, code, why);
    refused(client.consume(consume(1, negative, None)).await, code, why);
    refused(
        client
            .consume(consume(1, None, duration(Duration::from_millis(999))))
            .await,
        code,
        why,
    );
    refused(
        client.consume(consume(1, None, seconds(12 * 3600 + 1))).await,
        code,
        why,
    );
    refused(client.consume(consume(1, None, negative)).await, code, why);
    let peek = PeekRequest {
        queue: "q".into(),
        max_messages: 1001,
        ..PeekRequest::default()
    };
    client.consume(consume(1, None, None)).await.unwrap();
    refused(client.peek(peek).await, code, why);
    refused(
        client
            .list_queues(ListQueuesRequest {
                page_size: 1001,
                ..Default::default()
            })
            .await,
        code,
        why,
    );
    let token = || vec![Bytes::from_static(b"token")];
    let extend = |lease| ExtendLeaseRequest {
        delivery_tokens: token(),
        lease,
    };
    refused(client.extend_lease(extend(None)).await, code, why);
    refused(
        client.extend_lease(extend(duration(Duration::from_millis(10)))).await,
        code,
        why,
    );
    let nack = |delay| NackRequest {
        delivery_tokens: token(),
        delay,
        ..Default::default()
    };
    refused(client.nack(nack(seconds(24 * 3600 + 1))).await, code, why);
    refused(client.nack(nack(negative)).await, code, why);
}

#[tokio::test]
async fn more_than_a_thousand_tokens_at_once_are_refused() {
    let (_server, mut client) = connected().await;
    let tokens = |count| vec![Bytes::from_static(b"x"); count];
    let both = AckRequest {
        delivery_tokens: tokens(600),
        message_ids: tokens(401),
    };
    refused(client.ack(both).await, Code::InvalidArgument, "INVALID_ARGUMENT");
    let allowed = AckRequest {
        delivery_tokens: tokens(600),
        message_ids: tokens(400),
    };
    let answer = client.ack(allowed).await.unwrap().into_inner();
    assert_eq!((answer.settled, answer.failures.len()), (0, 1000));
}

#[tokio::test]
async fn a_page_token_that_we_did_not_give_is_refused_or_harmless() {
    let (_server, mut client) = connected().await;
    let request = ListQueuesRequest {
        page_token: "\u{0}nonsense é".into(),
        ..Default::default()
    };
    if let Err(status) = client.list_queues(request).await {
        assert_eq!(status.code(), Code::InvalidArgument);
    }
}
