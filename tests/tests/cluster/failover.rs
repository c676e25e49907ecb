//! Nodes die, hang and come back while messages are published: what was acknowledged is there, once, and writing goes on
//! soon.

use std::time::{Duration, Instant};

use boltq_tests::harness::binary::{BinaryClient, command, status};
use boltq_tests::harness::{Cluster, Random, eventually};
use serde_json::json;

use super::load::{Load, QUEUE, drain};

/// For writing to go on after a leader died.
const GAP_WORST: Duration = Duration::from_secs(4);
/// A leader that stops in good order hands over before.
const HANDED_OVER_WORST: Duration = Duration::from_secs(2);

#[test]
fn a_leader_that_is_killed_loses_nothing_and_another_one_takes_over() {
    kill_leaders(3);
}

/// As the three kills, with a median.
#[test]
#[ignore = "takes minutes; run it with --ignored"]
fn twenty_killed_leaders_lose_nothing() {
    let gaps = kill_leaders(20);
    assert!(gaps[gaps.len() / 2] < Duration::from_millis(1_500), "{gaps:?}");
}

/// The gaps, shortest first.
fn kill_leaders(kills: u32) -> Vec<Duration> {
    let mut random = Random::from_environment("killed");
    let mut cluster = Cluster::start(3);
    let load = Load::start(&cluster);
    let mut killed_at = Vec::new();
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(random.within(200..800)));
        let leader = cluster.leader();
        killed_at.push(Instant::now());
        cluster.kill(leader);
        // Answers that were under way are no progress.
        cluster.leader();
        load.await_progress();
        cluster.start_node(leader);
        cluster.await_settled();
    }
    let promised = load.stop();
    let ends = killed_at.iter().skip(1).copied().chain([Instant::now()]);
    let mut gaps: Vec<Duration> = killed_at
        .iter()
        .zip(ends)
        .map(|(killed, end)| promised.longest_gap(*killed, end))
        .collect();
    gaps.sort_unstable();
    println!("{} acknowledged, write gaps {gaps:?}", promised.messages);
    promised.check(&cluster);
    assert!(gaps.iter().all(|gap| *gap < GAP_WORST), "{gaps:?}");
    gaps
}

#[test]
fn a_leader_that_hangs_is_replaced_and_follows_when_it_goes_on() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(&cluster);
    let leader = cluster.leader();
    let paused_at = Instant::now();
    cluster.pause(leader);
    std::thread::sleep(Duration::from_secs(10));
    assert_ne!(cluster.leader(), leader);
    cluster.resume(leader);
    let resumed_at = Instant::now();
    cluster.await_settled();
    load.await_progress();
    let promised = load.stop();
    let gap = promised.longest_gap(paused_at, resumed_at);
    println!("{} acknowledged, write gap {gap:?}", promised.messages);
    promised.check(&cluster);
    assert!(gap < GAP_WORST, "{gap:?}");
}

#[test]
fn all_nodes_killed_at_once_come_back_with_everything() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(&cluster);
    std::thread::sleep(Duration::from_secs(1));
    cluster.kill_all();
    for index in 0..3 {
        cluster.start_node(index);
    }
    load.await_progress();
    cluster.await_settled();
    let promised = load.stop();
    println!("{} acknowledged", promised.messages);
    promised.check(&cluster);
}

#[test]
fn a_rolling_restart_loses_nothing_and_hardly_stops_writing() {
    let mut cluster = Cluster::start(3);
    let load = Load::start(&cluster);
    let started = Instant::now();
    for index in 0..3 {
        let status = cluster.terminate(index);
        assert!(status.success(), "{status}");
        cluster.start_node(index);
        cluster.await_settled();
        load.await_progress();
    }
    let promised = load.stop();
    let gap = promised.longest_gap(started, Instant::now());
    println!("{} acknowledged, longest write gap {gap:?}", promised.messages);
    promised.check(&cluster);
    assert!(gap < HANDED_OVER_WORST, "{gap:?}");
}

/// What it is asked for while it is paused, it answers when it goes on: before it has heard that it no longer leads.
#[test]
fn a_leader_that_was_paused_delivers_nothing_that_others_had_since() {
    let mut cluster = Cluster::start(3);
    let old = cluster.leader();
    let mut client = BinaryClient::connect(cluster.node(old).messaging());
    for number in 0..50 {
        client
            .call(
                command::PUBLISH,
                &json!({"topic": QUEUE, "payload": number}).to_string(),
            )
            .ok();
    }
    cluster.pause(old);
    for _ in 0..20 {
        client
            .send(command::CONSUME, json!({"topic": QUEUE}).to_string().as_bytes())
            .unwrap();
    }
    eventually(Duration::from_secs(20), "another node leads", || {
        (cluster.leader() != old).then_some(())
    });
    assert_eq!(drain(&cluster).len(), 50);
    cluster.resume(old);
    for _ in 0..20 {
        let answer = client.receive().unwrap();
        assert_eq!(answer.status, status::NOT_LEADER, "{:?}", answer.json());
    }
}
