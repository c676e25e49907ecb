//! gRPC: Ack, Nack and ExtendLease, by token and by id.

use std::time::{Duration, Instant};

use boltq_proto::queue::v1::{
    AckRequest, ConsumeRequest, ExtendLeaseRequest, NackRequest, SettleFailure, SettleFailureReason,
};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, duration, message};
use boltq_tests::harness::{Server, ServerOptions, eventually_async};
use bytes::Bytes;
use tonic::Code;

async fn connected() -> (Server, QueueClient) {
    let options = ServerOptions::memory()
        .set("queue.retry_backoff", "1ms")
        .set("queue.ack_timeout", "1s");
    let server = Server::start(&options);
    let client = connect(server.messaging()).await;
    (server, client)
}

fn failure(token: &Bytes, reason: SettleFailureReason) -> SettleFailure {
    SettleFailure {
        token: token.clone(),
        reason: reason.into(),
    }
}

#[tokio::test]
async fn a_batch_settles_what_it_can_and_names_the_rest() {
    let (_server, mut client) = connected().await;
    for payload in ["a", "b", "c"] {
        client.put("q", message(payload)).await;
    }
    let taken = client.take("q", 3).await;
    let token = |index: usize| taken[index].delivery_token.clone();
    let malformed = Bytes::from_static(b"not a token");
    let request = AckRequest {
        delivery_tokens: vec![token(0), malformed.clone(), token(1), token(0)],
        message_ids: vec![
            taken[2].message_id.clone(),
            Bytes::from_static(&[9; 16]),
            Bytes::from_static(b"short"),
        ],
    };
    let answer = client.ack(request).await.unwrap().into_inner();
    assert_eq!(answer.settled, 3);
    let mut expected = vec![
        failure(&malformed, SettleFailureReason::Malformed),
        failure(&token(0), SettleFailureReason::NotFound),
        failure(&Bytes::from_static(&[9; 16]), SettleFailureReason::NotFound),
        failure(&Bytes::from_static(b"short"), SettleFailureReason::Malformed),
    ];
    let mut failures = answer.failures;
    let order = |failure: &SettleFailure| (failure.token.clone(), failure.reason);
    failures.sort_by_key(order);
    expected.sort_by_key(order);
    assert_eq!(failures, expected);
    assert_eq!(client.look("q").await.leased, 0);
}

#[tokio::test]
async fn an_ack_of_nothing_settles_nothing() {
    let (_server, mut client) = connected().await;
    let answer = client.ack(AckRequest::default()).await.unwrap().into_inner();
    assert_eq!((answer.settled, answer.failures.len()), (0, 0));
}

#[tokio::test]
async fn a_nacked_message_comes_again_and_counts_the_attempt() {
    let (_server, mut client) = connected().await;
    let id = client.put("q", message("x")).await;
    for attempts in 0..3 {
        let delivery = client.take_one("q").await;
        assert_eq!((&delivery.message_id, delivery.attempts), (&id, attempts));
        let request = NackRequest {
            delivery_tokens: vec![delivery.delivery_token],
            ..Default::default()
        };
        assert_eq!(client.nack(request).await.unwrap().into_inner().settled, 1);
    }
}

#[tokio::test]
async fn a_nack_may_choose_its_own_delay() {
    let (_server, mut client) = connected().await;
    client.put("q", message("x")).await;
    let delivery = client.take_one("q").await;
    let nacked = Instant::now();
    let request = NackRequest {
        delivery_tokens: vec![delivery.delivery_token],
        delay: duration(Duration::from_millis(700)),
        ..Default::default()
    };
    client.nack(request).await.unwrap();
    assert!(client.take("q", 1).await.is_empty());
    client.take_one("q").await;
    let waited = nacked.elapsed();
    assert!(
        (Duration::from_millis(700)..Duration::from_millis(1200)).contains(&waited),
        "{waited:?}"
    );
}

#[tokio::test]
async fn a_nack_by_id_works_for_who_has_no_token() {
    let (_server, mut client) = connected().await;
    let id = client.put("q", message("x")).await;
    client.take_one("q").await;
    let request = NackRequest {
        message_ids: vec![id],
        ..Default::default()
    };
    assert_eq!(client.nack(request).await.unwrap().into_inner().settled, 1);
    assert_eq!(client.take_one("q").await.attempts, 1);
}

#[tokio::test]
async fn a_nack_can_dead_letter_at_once() {
    let (_server, mut client) = connected().await;
    let id = client.put("q", message("x")).await;
    let delivery = client.take_one("q").await;
    let request = NackRequest {
        delivery_tokens: vec![delivery.delivery_token],
        dead_letter: true,
        ..Default::default()
    };
    client.nack(request).await.unwrap();
    let dead = client.take_one("q_dead_letter").await;
    assert_eq!((dead.message_id, &dead.payload[..]), (id, &b"x"[..]));
    assert!(client.take("q", 1).await.is_empty());
}

#[tokio::test]
async fn a_lease_can_be_longer_than_the_servers_default() {
    let (_server, mut client) = connected().await;
    client.put("q", message("x")).await;
    let lease = duration(Duration::from_secs(60));
    let request = ConsumeRequest {
        queue: "q".into(),
        lease,
        ..Default::default()
    };
    let delivery = client.consume(request).await.unwrap().into_inner().deliveries.remove(0);
    let wait = duration(Duration::from_millis(2500));
    let request = ConsumeRequest {
        queue: "q".into(),
        wait,
        ..Default::default()
    };
    assert!(
        client
            .consume(request)
            .await
            .unwrap()
            .into_inner()
            .deliveries
            .is_empty()
    );
    assert_eq!(client.done(&[delivery]).await, 1);
}

#[tokio::test]
async fn an_extended_lease_outlives_its_first_end() {
    let (_server, mut client) = connected().await;
    client.put("q", message("x")).await;
    let delivery = client.take_one("q").await;
    let request = ExtendLeaseRequest {
        delivery_tokens: vec![delivery.delivery_token.clone(), Bytes::from_static(b"nonsense")],
        lease: duration(Duration::from_secs(60)),
    };
    let answer = client.extend_lease(request).await.unwrap().into_inner();
    assert_eq!((answer.extended, answer.failures.len()), (1, 1));
    let wait = duration(Duration::from_millis(2500));
    let request = ConsumeRequest {
        queue: "q".into(),
        wait,
        ..Default::default()
    };
    assert!(
        client
            .consume(request)
            .await
            .unwrap()
            .into_inner()
            .deliveries
            .is_empty()
    );
    assert_eq!(client.done(&[delivery]).await, 1);
}

#[tokio::test]
async fn a_lease_that_is_gone_cannot_be_extended() {
    let (_server, mut client) = connected().await;
    client.put("q", message("x")).await;
    let first = client.take_one("q").await;
    let second = client.take_one("q").await;
    assert_eq!(second.attempts, 1, "the first lease timed out");
    let extend = |token: &Bytes| ExtendLeaseRequest {
        delivery_tokens: vec![token.clone()],
        lease: duration(Duration::from_secs(5)),
    };
    let answer = client
        .extend_lease(extend(&first.delivery_token))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (answer.extended, answer.failures),
        (0, vec![failure(&first.delivery_token, SettleFailureReason::LeaseLost)])
    );
    client.done(std::slice::from_ref(&second)).await;
    let answer = client
        .extend_lease(extend(&second.delivery_token))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        answer.failures,
        [failure(&second.delivery_token, SettleFailureReason::NotFound)]
    );
}

/// An acknowledgement whose caller went away is carried out or not, but its message never goes to somebody else meanwhile.
#[tokio::test]
async fn an_ack_that_is_given_up_half_way_lets_nobody_else_have_the_message() {
    const MESSAGES: usize = 300;
    let server = Server::start(&ServerOptions::disk());
    let mut client = connect(server.messaging()).await;
    for n in 0..MESSAGES {
        client.put("q", message(n.to_string())).await;
    }
    let deliveries = client.take("q", 1_000).await;
    assert_eq!(deliveries.len(), MESSAGES);
    for (n, delivery) in deliveries.iter().enumerate() {
        let request = AckRequest {
            delivery_tokens: vec![delivery.delivery_token.clone()],
            ..Default::default()
        };
        // Given up at all stages: before it is sent, while it is on its way, after it was carried out.
        let patience = Duration::from_micros(n as u64 * 2);
        tokio::time::timeout(patience, client.ack(request)).await.ok();
        assert_eq!(client.take("q", 10).await, [], "message {n} came again");
    }
    // Whoever asks again gets an answer, and nothing is stuck. The last one may still be on its way to the disk.
    client.done(&deliveries).await;
    eventually_async(Duration::from_secs(10), "the queue is empty", || {
        let mut client = client.clone();
        async move {
            let queue = client.look("q").await;
            (queue.ready + queue.leased == 0).then_some(())
        }
    })
    .await;
}

#[tokio::test]
async fn a_released_message_is_ready_at_once_and_counts_no_attempt() {
    let (_server, mut client) = connected().await;
    client.put("q", message("first")).await;
    client.put("q", message("second")).await;
    let long = ConsumeRequest {
        queue: "q".to_owned(),
        lease: duration(Duration::from_secs(600)),
        ..ConsumeRequest::default()
    };
    let taken = client
        .consume(long.clone())
        .await
        .unwrap()
        .into_inner()
        .deliveries
        .remove(0);
    let release = NackRequest {
        delivery_tokens: vec![taken.delivery_token.clone()],
        release: true,
        ..NackRequest::default()
    };
    assert_eq!(client.nack(release.clone()).await.unwrap().into_inner().settled, 1);
    let again = client.consume(long).await.unwrap().into_inner().deliveries.remove(0);
    assert_eq!((&again.payload[..], again.attempts), (&b"first"[..], 0));
    let late = client.nack(release.clone()).await.unwrap().into_inner();
    assert_eq!(
        late.failures,
        [failure(&taken.delivery_token, SettleFailureReason::LeaseLost)]
    );
    let both = NackRequest {
        dead_letter: true,
        ..release
    };
    let refused = client.nack(both).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
}
