//! gRPC: PublishStream.

use std::time::Duration;

use boltq_proto::queue::v1::{PublishStreamRequest, PublishStreamResponse};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message, reason};
use boltq_tests::harness::{Server, ServerOptions, within};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

const DEADLINE: Duration = Duration::from_secs(20);

async fn connected(options: &ServerOptions) -> (Server, QueueClient) {
    let server = Server::start(options);
    let client = connect(server.messaging()).await;
    (server, client)
}

fn batch(queue: &str, payloads: &[&'static str]) -> PublishStreamRequest {
    PublishStreamRequest {
        queue: queue.to_owned(),
        messages: payloads.iter().map(|payload| message(*payload)).collect(),
        ..PublishStreamRequest::default()
    }
}

async fn open(client: &mut QueueClient) -> (mpsc::Sender<PublishStreamRequest>, Streaming<PublishStreamResponse>) {
    let (requests, outbound) = mpsc::channel(64);
    let responses = within(
        DEADLINE,
        "the stream opens",
        client.publish_stream(ReceiverStream::new(outbound)),
    );
    (requests, responses.await.expect("a stream").into_inner())
}

async fn next(responses: &mut Streaming<PublishStreamResponse>) -> Result<Option<PublishStreamResponse>, Status> {
    within(DEADLINE, "an answer", responses.message()).await
}

#[tokio::test]
async fn each_batch_is_answered_by_its_number_and_an_id_for_each_message() {
    let (_server, mut client) = connected(&ServerOptions::disk()).await;
    let (requests, mut responses) = open(&mut client).await;
    let mut ids = Vec::new();
    for number in 1..=20_u64 {
        requests.send(batch("q", &["a", "b", "c"])).await.unwrap();
        let answer = next(&mut responses).await.unwrap().unwrap();
        assert_eq!(
            (answer.batch, answer.message_ids.len(), answer.failures.len()),
            (number, 3, 0)
        );
        ids.extend(answer.message_ids);
    }
    drop(requests);
    assert_eq!(
        next(&mut responses).await.unwrap(),
        None,
        "the stream ends after the last answer"
    );
    let taken = client.take("q", 100).await;
    assert_eq!(
        taken
            .iter()
            .map(|delivery| delivery.message_id.clone())
            .collect::<Vec<_>>(),
        ids
    );
}

#[tokio::test]
async fn answers_come_in_the_order_of_the_requests_when_many_are_outstanding() {
    let (_server, mut client) = connected(&ServerOptions::disk()).await;
    let requests: Vec<_> = (0..500)
        .map(|number| batch(if number == 0 { "q" } else { "" }, &["x"; 7]))
        .collect();
    let mut responses = client
        .publish_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    for number in 1..=500 {
        let answer = next(&mut responses).await.unwrap().unwrap();
        assert_eq!((answer.batch, answer.message_ids.len()), (number, 7));
    }
    assert_eq!(next(&mut responses).await.unwrap(), None);
    assert_eq!(client.look("q").await.ready, 3500);
}

#[tokio::test]
async fn an_empty_queue_name_means_that_of_the_request_before() {
    let (_server, mut client) = connected(&ServerOptions::memory()).await;
    let (requests, mut responses) = open(&mut client).await;
    for queue in ["a", "", "b", "", ""] {
        requests.send(batch(queue, &["x"])).await.unwrap();
        next(&mut responses).await.unwrap().unwrap();
    }
    assert_eq!((client.look("a").await.ready, client.look("b").await.ready), (2, 3));
}

/// Refused like any other message that cannot be stored; the stream goes on.
#[tokio::test]
async fn the_first_request_has_to_name_a_queue() {
    let (_server, mut client) = connected(&ServerOptions::memory()).await;
    let (requests, mut responses) = open(&mut client).await;
    requests.send(batch("", &["x"])).await.unwrap();
    let answer = next(&mut responses).await.unwrap().unwrap();
    assert_eq!(
        (answer.message_ids, answer.failures[0].reason.as_str()),
        (vec![Bytes::new()], "INVALID_NAME")
    );
    requests.send(batch("q", &["x"])).await.unwrap();
    assert_eq!(next(&mut responses).await.unwrap().unwrap().failures, []);
}

#[tokio::test]
async fn a_refused_message_does_not_keep_the_others_of_its_batch_from_being_stored() {
    let (_server, mut client) = connected(&ServerOptions::memory()).await;
    let (requests, mut responses) = open(&mut client).await;
    let broken = Message {
        content_type: "application/json".into(),
        ..message("{")
    };
    let wide = Message {
        headers: [("k".to_owned(), "v".repeat(70_000))].into(),
        ..message("wide")
    };
    let request = PublishStreamRequest {
        queue: "q".into(),
        messages: vec![message("first"), broken, wide, message("last")],
        ..PublishStreamRequest::default()
    };
    requests.send(request).await.unwrap();
    let answer = next(&mut responses).await.unwrap().unwrap();
    assert_eq!(
        answer.message_ids.iter().map(Bytes::len).collect::<Vec<_>>(),
        [16, 0, 0, 16]
    );
    let failures: Vec<(u32, bool)> = answer
        .failures
        .iter()
        .map(|failure| (failure.index, failure.retriable))
        .collect();
    assert_eq!(failures, [(1, false), (2, false)]);
    assert_eq!(answer.failures[1].reason, "HEADERS_TOO_LARGE");
    assert!(
        answer
            .failures
            .iter()
            .all(|failure| !failure.message.is_empty() && !failure.reason.is_empty())
    );
    requests.send(batch("", &["after"])).await.unwrap();
    assert_eq!(
        next(&mut responses).await.unwrap().unwrap().batch,
        2,
        "the stream goes on"
    );
    let payloads: Vec<_> = client
        .take("q", 10)
        .await
        .into_iter()
        .map(|delivery| delivery.payload)
        .collect();
    assert_eq!(payloads, ["first", "last", "after"]);
}

#[tokio::test]
async fn empty_and_oversized_batches_are_refused() {
    let (_server, mut client) = connected(&ServerOptions::memory()).await;
    for request in [batch("q", &[]), batch("q", &["x"; 1001])] {
        let (requests, mut responses) = open(&mut client).await;
        requests.send(request).await.unwrap();
        let status = next(&mut responses).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(!reason(&status).is_empty());
    }
    let (requests, mut responses) = open(&mut client).await;
    requests.send(batch("q", &["x"; 1000])).await.unwrap();
    assert_eq!(next(&mut responses).await.unwrap().unwrap().message_ids.len(), 1000);
}

/// The server stops reading when its budget of unanswered bytes is used up: a publisher that never reads answers is
/// held back and costs bounded memory.
#[tokio::test]
async fn a_publisher_that_reads_no_answers_is_held_back() {
    let (server, mut client) = connected(&ServerOptions::disk()).await;
    client.put("q", message("x")).await;
    let before = server.stat().rss_bytes();
    let request = PublishStreamRequest {
        queue: "q".into(),
        messages: vec![message(vec![b'x'; 1000]); 1000],
        ..PublishStreamRequest::default()
    };
    let endless = tokio_stream::iter(std::iter::repeat_n(request, 400));
    let mut responses = client.publish_stream(endless).await.unwrap().into_inner();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let grown = server.stat().rss_bytes().saturating_sub(before);
    assert!(grown < 150 * 1024 * 1024, "grew by {} MiB", grown >> 20);
    for number in 1..=400 {
        assert_eq!(next(&mut responses).await.unwrap().unwrap().batch, number);
    }
}

/// What it published is stored; only its answers wait for it. So it takes no room that others need.
#[tokio::test]
async fn publishers_that_read_no_answers_do_not_hold_up_others() {
    let (server, mut client) = connected(&ServerOptions::disk()).await;
    let request = PublishStreamRequest {
        queue: "q".into(),
        messages: vec![message(vec![b'x'; 1000]); 200],
        ..PublishStreamRequest::default()
    };
    let mut unread = Vec::new();
    for _ in 0..4 {
        let mut publisher = connect(server.messaging()).await;
        let endless = tokio_stream::iter(std::iter::repeat_n(request.clone(), 400));
        unread.push(publisher.publish_stream(endless).await.unwrap());
    }
    let mut stored = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = client.look("q").await.ready;
        if now == stored && now > 0 {
            break;
        }
        stored = now;
    }
    within(DEADLINE, "a publish", client.put("other", message("x"))).await;
    assert_eq!(client.look("other").await.ready, 1);
}

#[tokio::test]
async fn what_came_before_a_wrong_request_is_stored_and_answered() {
    let (_server, mut client) = connected(&ServerOptions::disk()).await;
    let requests = [
        batch("q", &["a"]),
        batch("", &["b", "c"]),
        batch("", &[]),
        batch("", &["d"]),
    ];
    let mut responses = client
        .publish_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    for (number, ids) in [(1, 1), (2, 2)] {
        let answer = next(&mut responses).await.unwrap().unwrap();
        assert_eq!((answer.batch, answer.message_ids.len()), (number, ids));
    }
    let status = next(&mut responses).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(client.look("q").await.ready, 3);
}

#[tokio::test]
async fn requests_for_several_queues_that_come_together_keep_their_own_ids() {
    let (_server, mut client) = connected(&ServerOptions::disk()).await;
    let requests = (0..60).map(|number| batch(["a", "b", ""][number % 3], &["x"; 3]));
    let mut responses = client
        .publish_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut ids = [Vec::new(), Vec::new()];
    for number in 0..60 {
        let answer = next(&mut responses).await.unwrap().unwrap();
        ids[usize::from(number % 3 != 0)].extend(answer.message_ids);
    }
    for (queue, ids) in ["a", "b"].into_iter().zip(ids) {
        let taken = client.take(queue, 200).await;
        let taken: Vec<_> = taken.into_iter().map(|delivery| delivery.message_id).collect();
        assert_eq!(taken, ids, "queue {queue}");
    }
}
