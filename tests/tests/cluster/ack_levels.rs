//! What each ack level survives, as docs/ack-levels.md has it, and answers that mean more than a majority.

use std::net::SocketAddr;
use std::time::Duration;

use boltq_proto::queue::v1::{AckLevel, PublishRequest, PublishStreamRequest, PublishStreamResponse};
use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message, reason};
use boltq_tests::harness::{Cluster, ServerOptions, eventually, eventually_async, http, within};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::load::{QUEUE, drain};

const DEADLINE: Duration = Duration::from_secs(30);

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

fn all_levels() -> ServerOptions {
    ServerOptions::disk().set("publish.min_ack_level", "NONE")
}

/// Three voters that are done with becoming that: while a voter is added, more nodes are needed than a majority of them.
fn start(options: &ServerOptions) -> Cluster {
    let cluster = Cluster::start_with(3, options);
    eventually(DEADLINE, "two nodes were promoted", || {
        let promoted = |log: &str| log.matches("group=\"queue\" step=\"promote ").count();
        let promoted: usize = cluster.nodes().iter().map(|node| promoted(&node.log())).sum();
        (promoted >= 2).then_some(())
    });
    cluster
}

/// A stream of messages that are numbers.
struct Publisher {
    requests: mpsc::Sender<PublishStreamRequest>,
    responses: Streaming<PublishStreamResponse>,
}

impl Publisher {
    async fn open(node: SocketAddr, first: u64, level: AckLevel) -> Self {
        let mut client = connect(node).await;
        let (requests, outbound) = mpsc::channel(1_000);
        // A node may answer the call only when it has seen the first request.
        requests.send(request(first, level)).await.unwrap();
        let opening = client.publish_stream(ReceiverStream::new(outbound));
        let responses = within(DEADLINE, "the stream opens", opening)
            .await
            .unwrap()
            .into_inner();
        Self { requests, responses }
    }

    async fn send(&self, number: u64, level: AckLevel) {
        self.requests.send(request(number, level)).await.unwrap();
    }

    async fn answer(&mut self) -> PublishStreamResponse {
        let answer = within(DEADLINE, "an answer", self.responses.message()).await;
        answer.unwrap().unwrap()
    }

    async fn stored(&mut self) {
        let answer = self.answer().await;
        assert!(answer.failures.is_empty(), "{:?}", answer.failures);
    }
}

fn request(number: u64, level: AckLevel) -> PublishStreamRequest {
    PublishStreamRequest {
        queue: QUEUE.to_owned(),
        messages: vec![message(number.to_string())],
        ack_level: level.into(),
    }
}

/// A node that does not lead passes the level on with the call.
#[test]
fn all_levels_are_answered_through_any_node() {
    let cluster = start(&all_levels());
    let follower = cluster.node(cluster.follower()).messaging();
    block_on(async {
        let mut publisher = Publisher::open(follower, 0, AckLevel::Leader).await;
        for number in 1..30 {
            let level = [AckLevel::Leader, AckLevel::None, AckLevel::Quorum][number as usize % 3];
            publisher.send(number, level).await;
        }
        for number in 0..30 {
            let answer = publisher.answer().await;
            let ids = usize::from(number % 3 == 2);
            assert_eq!(
                (answer.batch, answer.message_ids.len(), answer.failures.len()),
                (number + 1, ids, 0)
            );
        }
    });
    let mut stored = drain(&cluster);
    stored.sort_unstable();
    assert_eq!(stored, (0..30).collect::<Vec<_>>());
}

/// The rest may be lost, and then it is the end that is lost. The leader that had it does not bring it back.
#[test]
fn of_what_a_leader_answered_that_is_killed_the_beginning_is_left() {
    let mut cluster = start(&all_levels());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for round in 0..3_u64 {
        let leader = cluster.leader();
        let node = cluster.node(leader).messaging();
        let numbers = round * 1_000..round * 1_000 + 200;
        runtime.block_on(async {
            let mut publisher = Publisher::open(node, numbers.start, AckLevel::Leader).await;
            for number in numbers.clone().skip(1) {
                publisher.send(number, AckLevel::Leader).await;
            }
            for _ in numbers.clone() {
                publisher.stored().await;
            }
        });
        cluster.kill(leader);
        let left = drain(&cluster);
        println!("{} of 200 are left", left.len());
        assert!(left.iter().copied().eq(numbers.take(left.len())), "{left:?}");
        cluster.start_node(leader);
        cluster.await_settled();
        assert_eq!(drain(&cluster), Vec::<u64>::new());
    }
}

/// A leader that is alone answers until it knows that it may have been replaced. It counts what is lost then.
#[test]
fn what_only_a_leader_had_that_was_replaced_is_lost_and_counted() {
    let options = all_levels().set("cluster.election_timeout", "3s");
    let mut cluster = start(&options);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (leader, answered) = eventually(Duration::from_secs(120), "a leader that is alone answers", || {
        let leader = cluster.leader();
        let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
        others.iter().for_each(|other| cluster.kill(*other));
        let answered = runtime.block_on(answered_alone(cluster.node(leader).messaging()));
        cluster.pause(leader);
        others.iter().for_each(|other| cluster.start_node(*other));
        if answered == 0 {
            cluster.resume(leader);
            cluster.await_settled();
        }
        (answered > 0).then_some((leader, answered))
    });
    assert_ne!(cluster.leader(), leader);
    cluster.resume(leader);
    cluster.await_settled();
    assert_eq!(drain(&cluster), Vec::<u64>::new());
    let lost = eventually(DEADLINE, "what was lost is counted", || {
        let metrics = http::get(cluster.node(leader).admin(), "/metrics").ok()?;
        let of = |level: &str| {
            let start = format!("boltq_publishes_lost_total{{ack_level=\"{level}\"}} ");
            let value = metrics.text().lines().find_map(|line| line.strip_prefix(&start))?;
            value.parse::<u64>().ok()
        };
        let lost = of("LEADER")? + of("NONE")?;
        (lost > 0).then_some(lost)
    });
    assert_eq!(lost, answered);
}

/// How many messages it answered; none if it no longer takes any.
async fn answered_alone(node: SocketAddr) -> u64 {
    let mut publisher = Publisher::open(node, 0, AckLevel::Leader).await;
    publisher.send(1, AckLevel::None).await;
    let mut answered = 0;
    for _ in 0..2 {
        match within(DEADLINE, "an answer", publisher.responses.message()).await {
            Ok(Some(answer)) if answer.failures.is_empty() => answered += 1,
            _ => break,
        }
    }
    answered
}

/// One log has all of it, in order.
#[test]
fn an_answer_at_quorum_covers_what_the_stream_sent_before() {
    let mut cluster = start(&all_levels());
    let leader = cluster.leader();
    let node = cluster.node(leader).messaging();
    block_on(async {
        let mut publisher = Publisher::open(node, 0, AckLevel::None).await;
        for number in 1..200 {
            let level = if number % 2 == 0 {
                AckLevel::None
            } else {
                AckLevel::Leader
            };
            publisher.send(number, level).await;
        }
        publisher.send(200, AckLevel::Quorum).await;
        for _ in 0..=200 {
            publisher.stored().await;
        }
    });
    cluster.kill(leader);
    assert_eq!(drain(&cluster), (0..=200).collect::<Vec<_>>());
}

#[test]
fn followers_that_die_take_nothing_that_the_leader_answered() {
    let mut cluster = start(&all_levels());
    let leader = cluster.leader();
    let node = cluster.node(leader).messaging();
    let killed = cluster.follower();
    block_on(async {
        let mut publisher = Publisher::open(node, 0, AckLevel::Leader).await;
        for number in 1..100 {
            publisher.send(number, AckLevel::Leader).await;
            if number == 50 {
                cluster.kill(killed);
            }
        }
        for _ in 0..100 {
            publisher.stored().await;
        }
    });
    assert_eq!(drain(&cluster), (0..100).collect::<Vec<_>>());
}

/// It could not keep what it answers.
#[test]
fn a_leader_without_a_majority_soon_answers_nothing_at_any_level() {
    let mut cluster = start(&all_levels().set("cluster.proposal_timeout", "1s"));
    let leader = cluster.leader();
    let node = cluster.node(leader).messaging();
    for other in (0..3).filter(|index| *index != leader) {
        cluster.kill(other);
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for level in [AckLevel::None, AckLevel::Leader, AckLevel::Quorum] {
        eventually(DEADLINE, "a publish is refused", || {
            runtime.block_on(async {
                let answer = Publisher::open(node, 0, level).await.answer().await;
                let reason = answer.failures.first().map(|failure| failure.reason.clone());
                matches!(reason.as_deref(), Some("NOT_LEADER" | "NO_MAJORITY")).then_some(())
            })
        });
    }
}

#[test]
fn a_leader_that_is_stopped_hands_over_what_it_answered() {
    let mut cluster = start(&all_levels());
    let leader = cluster.leader();
    let node = cluster.node(leader).messaging();
    block_on(async {
        let mut publisher = Publisher::open(node, 0, AckLevel::Leader).await;
        for number in 1..200 {
            publisher.send(number, AckLevel::Leader).await;
        }
        for _ in 0..200 {
            publisher.stored().await;
        }
    });
    assert!(cluster.terminate(leader).success());
    assert_eq!(drain(&cluster), (0..200).collect::<Vec<_>>());
}

async fn publish(client: &mut QueueClient) -> Result<(), String> {
    let request = PublishRequest {
        queue: QUEUE.to_owned(),
        message: Some(message("0")),
    };
    let answer = within(DEADLINE, "an answer", client.publish(request)).await;
    answer.map(drop).map_err(|status| reason(&status))
}

/// Until it is answered in this way: leaders change, and that somebody is gone shows after a while.
async fn publish_until(client: &QueueClient, wanted: Result<(), &str>) {
    eventually_async(DEADLINE, "a publish is answered as wanted", || {
        let mut client = client.clone();
        async move {
            let answer = publish(&mut client).await;
            (answer.as_ref().copied().map_err(String::as_str) == wanted).then_some(())
        }
    })
    .await;
}

#[test]
fn with_fewer_voters_than_are_wanted_publishes_are_refused_and_the_rest_goes_on() {
    let options = ServerOptions::disk()
        .set("cluster.min_in_sync", 3)
        .set("cluster.proposal_timeout", "1s");
    let mut cluster = start(&options);
    let leader = cluster.leader();
    let node = cluster.node(leader).messaging();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(connect(node));
    runtime.block_on(publish_until(&client, Ok(())));
    let gone = cluster.follower();
    cluster.kill(gone);
    runtime.block_on(async {
        publish_until(&client, Err("NOT_ENOUGH_REPLICAS")).await;
        streams_go_on(node).await;
        consuming_goes_on(client.clone()).await;
    });
    let refused =
        BinaryClient::connect(node).call(command::PUBLISH, &json!({"topic": QUEUE, "payload": 1}).to_string());
    assert_eq!(refused.status, status::ERROR);
    assert!(
        refused.error().contains("cluster.min_in_sync asks for 3"),
        "{}",
        refused.error()
    );
    let metrics = http::get(cluster.node(leader).admin(), "/metrics")
        .unwrap()
        .text()
        .to_owned();
    let counted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("boltq_publishes_refused_replicas_total "));
    assert!(counted.unwrap().parse::<u64>().unwrap() >= 3, "{metrics}");
    cluster.start_node(gone);
    runtime.block_on(publish_until(&client, Ok(())));
    let confirmed = eventually(DEADLINE, "the binary protocol publishes", || {
        let reply =
            BinaryClient::connect(node).call(command::PUBLISH, &json!({"topic": QUEUE, "payload": 1}).to_string());
        (reply.status == status::OK).then_some(reply)
    });
    confirmed.ok();
}

/// Every request is refused for itself, as with a full disk. Who asks for less is not.
async fn streams_go_on(node: SocketAddr) {
    let mut publisher = Publisher::open(node, 0, AckLevel::Quorum).await;
    for number in 1..=2 {
        let answer = publisher.answer().await;
        assert_eq!(answer.batch, number);
        let failure = &answer.failures[0];
        assert_eq!(
            (failure.reason.as_str(), failure.retriable),
            ("NOT_ENOUGH_REPLICAS", true)
        );
        publisher.send(number, AckLevel::Quorum).await;
    }
}

async fn consuming_goes_on(mut client: QueueClient) {
    let delivery = client.take_one(QUEUE).await;
    assert_eq!(client.done(&[delivery]).await, 1);
}

/// It hangs, and that does not show in the time that an answer may take.
#[test]
fn what_too_few_voters_confirm_in_time_is_stored_and_answered_as_such() {
    let options = ServerOptions::disk()
        .set("cluster.min_in_sync", 3)
        .set("cluster.proposal_timeout", "1s")
        .set("cluster.election_timeout", "60s");
    let mut cluster = start(&options);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(connect(cluster.node(cluster.leader()).messaging()));
    runtime.block_on(publish_until(&client, Ok(())));
    let hangs = cluster.follower();
    cluster.pause(hangs);
    runtime.block_on(async {
        publish_until(&client, Err("NOT_IN_SYNC")).await;
        let mut client = client.clone();
        assert!(client.look(QUEUE).await.ready >= 2, "a majority has it");
        consuming_goes_on(client).await;
    });
    cluster.resume(hangs);
    runtime.block_on(publish_until(&client, Ok(())));
}
