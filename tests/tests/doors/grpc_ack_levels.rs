//! gRPC: how much the answers of PublishStream wait for.

use std::time::Duration;

use boltq_proto::queue::v1::{AckLevel, PublishStreamRequest, PublishStreamResponse};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message, reason};
use boltq_tests::harness::{Server, ServerOptions, eventually_async, http, within};
use bytes::Bytes;
use tonic::{Code, Status};

const DEADLINE: Duration = Duration::from_secs(20);

/// On disk; publishers may ask for `min` and more.
async fn connected(min: &str) -> (Server, QueueClient) {
    let server = Server::start(&ServerOptions::disk().set("publish.min_ack_level", min));
    let client = connect(server.messaging()).await;
    (server, client)
}

fn request(ack_level: i32, messages: Vec<Message>) -> PublishStreamRequest {
    PublishStreamRequest {
        queue: "q".into(),
        messages,
        ack_level,
    }
}

fn one(level: AckLevel, payload: impl Into<Bytes>) -> PublishStreamRequest {
    request(level.into(), vec![message(payload)])
}

/// The answers, and how the stream ended.
async fn answers(
    client: &mut QueueClient,
    requests: Vec<PublishStreamRequest>,
) -> (Vec<PublishStreamResponse>, Result<(), Status>) {
    let mut answers = Vec::new();
    let opened = client.publish_stream(tokio_stream::iter(requests)).await;
    let mut responses = match opened {
        Ok(opened) => opened.into_inner(),
        Err(status) => return (answers, Err(status)),
    };
    loop {
        match within(DEADLINE, "an answer", responses.message()).await {
            Ok(Some(answer)) => answers.push(answer),
            Ok(None) => return (answers, Ok(())),
            Err(status) => return (answers, Err(status)),
        }
    }
}

fn metric(server: &Server, name: &str) -> u64 {
    let metrics = http::get(server.admin(), "/metrics").unwrap();
    let value = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name} in\n{}", metrics.text()))
}

#[tokio::test]
async fn requests_of_all_levels_share_a_stream_and_are_answered_and_stored_in_order() {
    let (server, mut client) = connected("NONE").await;
    let levels = [
        AckLevel::Unspecified,
        AckLevel::Leader,
        AckLevel::None,
        AckLevel::Quorum,
        AckLevel::None,
    ];
    let requests = (0..200_usize).map(|number| one(levels[number % levels.len()], number.to_string()));
    let (answers, end) = answers(&mut client, requests.collect()).await;
    end.unwrap();
    assert_eq!(answers.len(), 200);
    for (number, answer) in answers.iter().enumerate() {
        let ids = usize::from(matches!(
            levels[number % levels.len()],
            AckLevel::Unspecified | AckLevel::Quorum
        ));
        assert_eq!((answer.batch as usize, answer.message_ids.len()), (number + 1, ids));
        assert!(answer.failures.is_empty());
    }
    // The last one was not waited for.
    eventually_async(DEADLINE, "everything is stored", || {
        let mut client = client.clone();
        async move { (client.look("q").await.ready == 200).then_some(()) }
    })
    .await;
    let taken = client.take("q", 1_000).await;
    let payloads: Vec<_> = taken.iter().map(|delivery| delivery.payload.clone()).collect();
    let sent: Vec<_> = (0..200).map(|number| Bytes::from(number.to_string())).collect();
    assert_eq!(payloads, sent);
    let answered = "boltq_publishes_answered_early_total";
    assert_eq!(metric(&server, &format!("{answered}{{ack_level=\"LEADER\"}}")), 40);
    assert_eq!(metric(&server, &format!("{answered}{{ack_level=\"NONE\"}}")), 80);
    let lost = "boltq_publishes_lost_total";
    assert_eq!(metric(&server, &format!("{lost}{{ack_level=\"LEADER\"}}")), 0);
    assert_eq!(metric(&server, &format!("{lost}{{ack_level=\"NONE\"}}")), 0);
}

#[tokio::test]
async fn what_is_refused_before_it_is_proposed_is_told_at_every_level() {
    let (_server, mut client) = connected("NONE").await;
    for level in [AckLevel::Leader, AckLevel::None] {
        let broken = Message {
            content_type: "application/json".into(),
            ..message("{")
        };
        let messages = vec![message("first"), broken, message("last")];
        let (answers, end) = answers(&mut client, vec![request(level.into(), messages)]).await;
        end.unwrap();
        let failures: Vec<u32> = answers[0].failures.iter().map(|failure| failure.index).collect();
        assert_eq!((answers[0].message_ids.len(), failures), (0, vec![1]));
    }
    eventually_async(DEADLINE, "the others are stored", || {
        let mut client = client.clone();
        async move { (client.look("q").await.ready == 4).then_some(()) }
    })
    .await;
}

async fn refused(client: &mut QueueClient, level: i32) -> Status {
    let requests = vec![one(AckLevel::Quorum, "before"), request(level, vec![message("weak")])];
    let (answers, end) = answers(client, requests).await;
    assert_eq!(answers.len(), 1, "what came before is answered");
    let status = end.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    status
}

#[tokio::test]
async fn less_than_the_configuration_allows_is_refused_by_the_name_of_the_key() {
    for (min, too_little, enough) in [
        (
            "QUORUM",
            &[AckLevel::Leader, AckLevel::None][..],
            &[AckLevel::Quorum][..],
        ),
        ("LEADER", &[AckLevel::None], &[AckLevel::Leader, AckLevel::Quorum]),
    ] {
        let (_server, mut client) = connected(min).await;
        for level in too_little {
            let status = refused(&mut client, (*level).into()).await;
            assert_eq!(reason(&status), "ACK_LEVEL_TOO_LOW");
            let wanted = format!("publish.min_ack_level, which is {min}");
            assert!(status.message().contains(&wanted), "{}", status.message());
        }
        for level in enough {
            let (answers, end) = answers(&mut client, vec![one(*level, "x")]).await;
            end.unwrap();
            assert_eq!(answers.len(), 1);
        }
        assert_eq!(client.look("q").await.ready as usize, too_little.len() + enough.len());
    }
}

#[tokio::test]
async fn less_than_a_majority_has_to_be_allowed() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let status = refused(&mut client, AckLevel::Leader.into()).await;
    assert_eq!(reason(&status), "ACK_LEVEL_TOO_LOW");
}

#[tokio::test]
async fn levels_that_are_not_known_are_refused() {
    let (_server, mut client) = connected("NONE").await;
    for level in [4, 100, -1, i32::MAX, i32::MIN] {
        let status = refused(&mut client, level).await;
        assert_eq!(reason(&status), "INVALID_ARGUMENT");
        assert!(
            status.message().contains(&format!("ack_level {level} is not known")),
            "{}",
            status.message()
        );
    }
    assert_eq!(client.look("q").await.ready, 5);
}

/// A node that is alone is all there is: what its log has is as safe as it gets.
#[tokio::test]
async fn what_the_log_of_a_node_that_is_alone_has_survives_its_end() {
    let (mut server, mut client) = connected("LEADER").await;
    for round in 1..=3_u64 {
        let requests = (0..100).map(|number: u64| one(AckLevel::Leader, number.to_string()));
        let (answers, end) = answers(&mut client, requests.collect()).await;
        end.unwrap();
        assert_eq!(answers.len(), 100);
        server.kill();
        server.restart();
        client = connect(server.messaging()).await;
        assert_eq!(client.look("q").await.ready, round * 100);
    }
}
