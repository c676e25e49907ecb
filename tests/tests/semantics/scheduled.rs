//! Messages that are not due: listing them, taking them back, giving them another time.

use std::time::{Duration, SystemTime};

use boltq_proto::queue::v1::reschedule_request::Due;
use boltq_proto::queue::v1::{
    CancelScheduledRequest, CancelScheduledResponse, ListScheduledRequest, PeekRequest, RescheduleRequest,
    ScheduledMessage, SettleFailureReason,
};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, duration, message, reason};
use boltq_tests::harness::{Server, ServerOptions, eventually_async};
use bytes::Bytes;
use prost_types::Timestamp;
use tonic::{Code, Status};

const HOUR: Duration = Duration::from_secs(3600);
const DEADLINE: Duration = Duration::from_secs(30);

async fn connected(options: &ServerOptions) -> (Server, QueueClient) {
    let server = Server::start(options);
    let client = connect(server.messaging()).await;
    (server, client)
}

async fn put(client: &mut QueueClient, payload: &'static str, delay: Duration) -> Bytes {
    let message = Message {
        delay: duration(delay),
        priority: 3,
        ..message(payload)
    };
    client.put("q", message).await
}

/// All pages, of `page_size` messages each.
async fn list(client: &mut QueueClient, page_size: u32) -> Vec<ScheduledMessage> {
    let (mut listed, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListScheduledRequest {
            queue: "q".to_owned(),
            page_size,
            page_token,
        };
        let page = client.list_scheduled(request).await.unwrap().into_inner();
        assert!(page.messages.len() <= page_size as usize);
        listed.extend(page.messages);
        if page.next_page_token.is_empty() {
            return listed;
        }
        page_token = page.next_page_token;
    }
}

fn ids(messages: &[ScheduledMessage]) -> Vec<&Bytes> {
    messages.iter().map(|message| &message.message_id).collect()
}

async fn cancel(client: &mut QueueClient, ids: &[&Bytes]) -> CancelScheduledResponse {
    let request = CancelScheduledRequest {
        message_ids: ids.iter().map(|id| (*id).clone()).collect(),
    };
    client.cancel_scheduled(request).await.unwrap().into_inner()
}

async fn reschedule(client: &mut QueueClient, id: &Bytes, due: Due) -> Result<Timestamp, Status> {
    let request = RescheduleRequest {
        message_id: id.clone(),
        due: Some(due),
    };
    let answer = client.reschedule(request).await?;
    Ok(answer.into_inner().deliver_at.unwrap())
}

fn peek() -> PeekRequest {
    PeekRequest {
        queue: "q".to_owned(),
        ..PeekRequest::default()
    }
}

fn after(delay: Duration) -> Due {
    Due::Delay(duration(delay).unwrap())
}

fn in_future(ahead: Duration) -> Timestamp {
    Timestamp::from(SystemTime::now() + ahead)
}

#[tokio::test]
async fn what_is_not_due_is_listed_in_due_order_page_by_page() {
    let (_server, mut client) = connected(&ServerOptions::memory()).await;
    let third = put(&mut client, "third", 3 * HOUR).await;
    let first = put(&mut client, "first", HOUR).await;
    let second = put(&mut client, "second", 2 * HOUR).await;
    client.put("q", message("ready")).await;
    for page_size in [1, 2, 100] {
        let listed = list(&mut client, page_size).await;
        assert_eq!(ids(&listed), [&first, &second, &third]);
        assert!(listed.iter().all(|message| message.priority == 3));
        let due = listed[0].deliver_at.unwrap().seconds;
        assert!((in_future(HOUR).seconds - 60..=in_future(HOUR).seconds + 1).contains(&due));
    }
    let request = |queue: &str, page_token: &str| ListScheduledRequest {
        queue: queue.to_owned(),
        page_token: page_token.to_owned(),
        ..ListScheduledRequest::default()
    };
    let error = client.list_scheduled(request("none", "")).await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error)),
        (Code::NotFound, "QUEUE_NOT_FOUND".to_owned())
    );
    let error = client.list_scheduled(request("q", "q")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn what_was_cancelled_is_never_delivered_and_what_is_due_cannot_be_cancelled() {
    let (mut server, mut client) = connected(&ServerOptions::disk()).await;
    let gone = put(&mut client, "gone", 2 * HOUR).await;
    let stays = put(&mut client, "stays", 3 * HOUR).await;
    let ready = client.put("q", message("ready")).await;
    let leased = put(&mut client, "leased", Duration::from_millis(1)).await;
    let taken = eventually_async(DEADLINE, "it is due", || {
        let (mut client, leased) = (client.clone(), leased.clone());
        async move {
            // It has the higher priority, so the other one is left alone once it is due.
            let mut peeked = client.peek(peek()).await.unwrap().into_inner().deliveries.into_iter();
            let due = peeked.any(|delivery| delivery.message_id == leased);
            let taken = if due { client.take("q", 1).await } else { Vec::new() };
            taken.into_iter().next()
        }
    })
    .await;
    let unknown = Bytes::from_static(&[7; 16]);
    let answer = cancel(
        &mut client,
        &[&gone, &ready, &leased, &unknown, &Bytes::from_static(b"short")],
    )
    .await;
    assert_eq!(answer.cancelled, 1);
    let reasons: Vec<_> = answer
        .failures
        .iter()
        .map(|failure| (&failure.token, failure.reason()))
        .collect();
    let expected = [
        (&Bytes::from_static(b"short"), SettleFailureReason::Malformed),
        (&ready, SettleFailureReason::NotScheduled),
        (&leased, SettleFailureReason::NotScheduled),
        (&unknown, SettleFailureReason::NotFound),
    ];
    assert_eq!(reasons, expected);
    assert_eq!(client.done(&[taken]).await, 1);
    let again = cancel(&mut client, &[&gone, &leased]).await;
    assert!(
        again
            .failures
            .iter()
            .all(|failure| failure.reason() == SettleFailureReason::NotFound)
    );
    assert_eq!(again.cancelled, 0);
    // Named twice in a request, it is gone the second time.
    let twice = put(&mut client, "twice", 2 * HOUR).await;
    let answer = cancel(&mut client, &[&twice, &twice]).await;
    let reasons: Vec<_> = answer.failures.iter().map(|failure| failure.reason()).collect();
    assert_eq!((answer.cancelled, reasons), (1, vec![SettleFailureReason::NotFound]));
    server.kill();
    server.restart();
    let mut client = connect(server.messaging()).await;
    assert_eq!(ids(&list(&mut client, 10).await), [&stays]);
    assert_eq!(client.look("q").await.delayed, 1);
}

#[tokio::test]
async fn a_message_that_is_rescheduled_comes_at_its_new_time_and_says_so() {
    let (mut server, mut client) = connected(&ServerOptions::disk()).await;
    let sooner = put(&mut client, "sooner", 2 * HOUR).await;
    let later = put(&mut client, "later", HOUR).await;
    let at = in_future(3 * HOUR);
    let due = reschedule(&mut client, &later, Due::DeliverAt(at)).await.unwrap();
    assert_eq!(due.seconds, at.seconds + i64::from(at.nanos > 999_000_000));
    server.kill();
    server.restart();
    let mut client = connect(server.messaging()).await;
    let listed = list(&mut client, 10).await;
    assert_eq!(ids(&listed), [&sooner, &later]);
    assert_eq!(listed[1].deliver_at, Some(due));
    let due = reschedule(&mut client, &sooner, after(Duration::ZERO)).await.unwrap();
    let peeked = eventually_async(DEADLINE, "it is due", || {
        let mut client = client.clone();
        async move {
            let peeked = client.peek(peek()).await.unwrap().into_inner();
            peeked.deliveries.into_iter().next()
        }
    })
    .await;
    assert_eq!((&peeked.message_id, peeked.deliver_at), (&sooner, Some(due)));
    let taken = client.take_one("q").await;
    assert_eq!((&taken.message_id, taken.deliver_at), (&sooner, Some(due)));
    let error = reschedule(&mut client, &sooner, after(HOUR)).await.unwrap_err();
    let refused = (error.code(), reason(&error));
    assert_eq!(refused, (Code::FailedPrecondition, "MESSAGE_NOT_SCHEDULED".to_owned()));
    client.done(&[taken]).await;
    let error = reschedule(&mut client, &sooner, after(HOUR)).await.unwrap_err();
    assert_eq!(
        (error.code(), reason(&error)),
        (Code::NotFound, "MESSAGE_NOT_FOUND".to_owned())
    );
    assert_eq!(client.look("q").await.delayed, 1);
}

#[tokio::test]
async fn requests_that_name_no_message_or_time_are_refused() {
    let (_server, mut client) = connected(&ServerOptions::memory()).await;
    let id = put(&mut client, "x", HOUR).await;
    let request = |message_id: &Bytes, due| RescheduleRequest {
        message_id: message_id.clone(),
        due,
    };
    let bad = Timestamp { seconds: -1, nanos: 0 };
    let year_9999 = Timestamp {
        seconds: 253_402_214_400,
        nanos: 0,
    };
    let negative = prost_types::Duration { seconds: -1, nanos: 0 };
    for request in [
        request(&Bytes::new(), Some(after(HOUR))),
        request(&id, None),
        request(&id, Some(Due::DeliverAt(bad))),
        request(&id, Some(Due::DeliverAt(year_9999))),
        request(&id, Some(Due::Delay(negative))),
    ] {
        let error = client.reschedule(request.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{request:?}");
    }
    let request = CancelScheduledRequest {
        message_ids: vec![id; 1_001],
    };
    let error = client.cancel_scheduled(request).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(client.look("q").await.delayed, 1);
}
