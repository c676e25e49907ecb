//! Dead letters go back to their queue.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use boltq_proto::queue::v1::{NackRequest, RedriveDeadLettersRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message, reason};
use boltq_tests::harness::{Server, ServerOptions};
use tonic::{Code, Status};

/// Publishes and rejects so many messages, which have their numbers as payloads.
async fn reject(client: &mut QueueClient, numbers: std::ops::Range<u8>) {
    for number in numbers {
        let published = Message {
            headers: BTreeMap::from([("even".to_owned(), (number % 2 == 0).to_string())]),
            priority: 3,
            ..message(vec![number])
        };
        client.put("q", published).await;
        let taken = client.take_one("q").await;
        let request = NackRequest {
            delivery_tokens: vec![taken.delivery_token],
            dead_letter: true,
            ..NackRequest::default()
        };
        assert_eq!(client.nack(request).await.unwrap().into_inner().settled, 1);
    }
}

fn all() -> RedriveDeadLettersRequest {
    RedriveDeadLettersRequest {
        queue: "q".to_owned(),
        ..RedriveDeadLettersRequest::default()
    }
}

/// What the last answer says.
async fn redrive(client: &mut QueueClient, request: RedriveDeadLettersRequest) -> Result<u64, Status> {
    let mut answers = client.redrive_dead_letters(request).await?.into_inner();
    let mut redriven = 0;
    while let Some(answer) = answers.message().await? {
        assert!(answer.redriven >= redriven);
        redriven = answer.redriven;
    }
    Ok(redriven)
}

#[tokio::test]
async fn they_come_again_as_if_they_had_never_been_tried() {
    let server = Server::start(&ServerOptions::memory().set("queue.max_retry", -1));
    let mut client = connect(server.messaging()).await;
    reject(&mut client, 0..5).await;
    let dead = client.take("q_dead_letter", 1).await;
    assert_eq!(dead[0].headers["x-death-reason"], "rejected");
    assert_eq!(redrive(&mut client, all()).await.unwrap(), 4);
    let back = client.take("q", 9).await;
    let payloads: Vec<u8> = back.iter().map(|delivery| delivery.payload[0]).collect();
    assert_eq!(payloads, [1, 2, 3, 4]);
    for delivery in &back {
        assert_eq!((delivery.attempts, delivery.priority), (0, 3));
        let headers: Vec<_> = delivery.headers.keys().collect();
        assert_eq!(headers, ["even"]);
    }
    assert_eq!(client.done(&back).await, 4);
    // The one that somebody holds was not taken away.
    assert_eq!(client.done(&dead).await, 1);
    assert_eq!(redrive(&mut client, all()).await.unwrap(), 0);
}

#[tokio::test]
async fn ids_stay_and_a_message_that_fails_again_dies_again() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let id = client.put("q", message("x")).await;
    for _ in 0..3 {
        let taken = client.take_one("q").await;
        assert_eq!(taken.message_id, id);
        let request = NackRequest {
            message_ids: vec![id.clone()],
            dead_letter: true,
            ..NackRequest::default()
        };
        assert_eq!(client.nack(request).await.unwrap().into_inner().settled, 1);
        let dead = client.look("q_dead_letter").await;
        assert_eq!(dead.ready, 1);
        assert_eq!(redrive(&mut client, all()).await.unwrap(), 1);
        assert_eq!(client.look("q_dead_letter").await.ready, 0);
    }
    let taken = client.take_one("q").await;
    assert_eq!(client.done(&[taken]).await, 1);
}

#[tokio::test]
async fn only_those_that_are_wanted_and_no_more_than_that() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    reject(&mut client, 0..10).await;
    let even = BTreeMap::from([
        ("even".to_owned(), "true".to_owned()),
        ("x-death-reason".to_owned(), "rejected".to_owned()),
    ]);
    let some = RedriveDeadLettersRequest {
        headers: even.clone().into_iter().collect(),
        max_messages: 3,
        ..all()
    };
    assert_eq!(redrive(&mut client, some).await.unwrap(), 3);
    let back = client.take("q", 9).await;
    let payloads: Vec<u8> = back.iter().map(|delivery| delivery.payload[0]).collect();
    assert_eq!(payloads, [0, 2, 4]);
    // What did not match is there for others, in its order and without another attempt.
    let dead = client.take("q_dead_letter", 99).await;
    let payloads: Vec<u8> = dead.iter().map(|delivery| delivery.payload[0]).collect();
    assert_eq!(payloads, [1, 3, 5, 6, 7, 8, 9]);
    assert!(dead.iter().all(|delivery| delivery.attempts == 0));
}

#[tokio::test]
async fn a_rate_is_not_exceeded_and_a_client_that_goes_away_ends_it() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    reject(&mut client, 0..30).await;
    let begun = Instant::now();
    let slowly = RedriveDeadLettersRequest {
        max_messages: 10,
        max_per_second: 20,
        ..all()
    };
    assert_eq!(redrive(&mut client, slowly).await.unwrap(), 10);
    assert!(begun.elapsed() >= Duration::from_millis(450), "{:?}", begun.elapsed());
    let one_each_second = RedriveDeadLettersRequest {
        max_per_second: 1,
        ..all()
    };
    let mut answers = client.redrive_dead_letters(one_each_second).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().redriven, 1);
    drop(answers);
    // What it held is there for the next one, which does not wait for a lease to end.
    let rest = async {
        let mut all_of_them = 11;
        while all_of_them < 30 {
            all_of_them += redrive(&mut client, all()).await.unwrap();
            let done = client.look("q").await.ready;
            all_of_them = all_of_them.max(done);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), rest).await.unwrap();
    assert_eq!(client.look("q").await.ready, 30);
}

#[tokio::test]
async fn without_dead_letters_it_is_refused_by_name() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    client.put("q", message("x")).await;
    let refused = redrive(&mut client, all()).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(reason(&refused), "DEAD_LETTERS_NOT_FOUND");
    let nameless = RedriveDeadLettersRequest::default();
    assert_eq!(
        redrive(&mut client, nameless).await.unwrap_err().code(),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn it_survives_a_kill() {
    let mut server = Server::start(&ServerOptions::disk());
    let mut client = connect(server.messaging()).await;
    reject(&mut client, 0..3).await;
    assert_eq!(redrive(&mut client, all()).await.unwrap(), 3);
    server.kill();
    server.restart();
    let mut client = connect(server.messaging()).await;
    assert_eq!(
        (client.look("q").await.ready, client.look("q_dead_letter").await.ready),
        (3, 0)
    );
}
