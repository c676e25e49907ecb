//! What is there after a kill, and what a log is not opened with.

use boltq_proto::stream::v1::NewRecord;
use boltq_tests::harness::{Directory, Server, ServerOptions};
use std::sync::Arc;

use super::client::{append, connect, options, put, read_all, record};

/// What was answered is there, each once and in order, however often the process is killed while senders append.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_answered_is_lost_or_doubled_by_kills() {
    let mut server = Server::start(&options(ServerOptions::disk()));
    let mut answered = vec![Vec::new(); 8];
    for round in 0..4 {
        let address = server.messaging();
        let senders: Vec<_> = answered
            .drain(..)
            .enumerate()
            .map(|(sender, mut answered)| {
                tokio::spawn(async move {
                    let mut client = connect(address).await;
                    loop {
                        let payload = format!("{round}-{}", answered.len());
                        let record = NewRecord {
                            idempotency_key: payload.clone(),
                            ..record(&payload)
                        };
                        match append(&mut client, &format!("conversation-{sender}"), vec![record]).await {
                            Ok(_) => answered.push(payload),
                            Err(_) => return answered,
                        }
                    }
                })
            })
            .collect();
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        server.kill();
        for sender in senders {
            answered.push(sender.await.unwrap());
        }
        server.restart();
    }
    let mut client = connect(server.messaging()).await;
    for (sender, answered) in answered.iter().enumerate() {
        let stored = read_all(&mut client, &format!("conversation-{sender}"), 0).await;
        assert!(!answered.is_empty());
        // The last append of a round may be stored without an answer: it is no other record than one that was sent.
        let mut stored = stored.iter();
        for payload in answered {
            assert!(
                stored.any(|record| record == payload),
                "{payload} is lost, doubled, or out of order"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_groups_is_decided_once() {
    let directory = Arc::new(Directory::new());
    let of = |groups: u32| options(ServerOptions::disk()).set("messaging.stream.groups", groups);
    let mut server = Server::start_in(&of(3), directory.clone()).unwrap();
    put(&mut connect(server.messaging()).await, "t", "x").await;
    assert!(server.terminate().success());
    drop(server);
    let Err(error) = Server::start_in(&of(4), directory.clone()) else {
        panic!("it starts")
    };
    let error = error.to_string();
    assert!(error.contains("messaging.stream.groups = 3"), "{error}");
    let server = Server::start_in(&of(3), directory).unwrap();
    assert_eq!(put(&mut connect(server.messaging()).await, "t", "y").await, 2);
}

/// Its groups would have no members, and each node might found its own.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_that_was_founded_without_the_plane_it_cannot_be_switched_on() {
    let directory = Arc::new(Directory::new());
    let without = ServerOptions::disk()
        .set("cluster.enabled", true)
        .set("cluster.bootstrap", true)
        .set("cluster.secret", "sixteen bytes or more")
        .set("cluster.raft_addr", "127.0.0.1:0");
    let mut server = Server::start_in(&without, directory.clone()).unwrap();
    assert!(server.terminate().success());
    drop(server);
    let Err(error) = Server::start_in(&options(without.clone()), directory.clone()) else {
        panic!("it starts")
    };
    let error = error.to_string();
    assert!(error.contains("there is no log of the messaging plane"), "{error}");
    Server::start_in(&without, directory).unwrap();
}

/// The planes have logs of their own, and the one need not be there for the other.
#[tokio::test(flavor = "multi_thread")]
async fn the_plane_can_be_switched_on_off_and_on_again() {
    let mut server = Server::start(&ServerOptions::disk());
    for round in 1..=2 {
        server.terminate();
        server.restart_with(&options(ServerOptions::disk()));
        assert_eq!(put(&mut connect(server.messaging()).await, "t", "x").await, round);
        server.kill();
        server.restart_with(&ServerOptions::disk());
    }
}
