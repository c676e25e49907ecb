//! Three nodes: any of them takes any call, each group has a leader of its own, and what was answered survives it.

use std::time::Duration;

use boltq_proto::stream::v1::NewRecord;
use boltq_tests::harness::{Cluster, ServerOptions};

use super::client::{
    StreamClient, append, at_last, commit_of, connect, options, page, read, read_all, reader, record, source, tail,
    told_records,
};

fn cluster() -> Cluster {
    let options = options(ServerOptions::disk()).set("messaging.stream.groups", 4);
    let cluster = Cluster::start_with(3, &options);
    cluster.await_settled();
    cluster
}

/// As [`append`], as soon as somebody leads.
async fn append_at_last(client: &StreamClient, topic: &str, record: NewRecord) -> u64 {
    at_last(|| {
        let (mut client, topic, record) = (client.clone(), topic.to_owned(), record.clone());
        async move { Ok(append(&mut client, &topic, vec![record]).await?[0].seq) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_appends_reads_and_moves_positions() {
    let cluster = cluster();
    let mut clients = Vec::new();
    for node in cluster.messaging() {
        clients.push(connect(node).await);
    }
    for number in 0..30usize {
        let client = &clients[number % 3];
        let topic = format!("t{}", number % 10);
        let seq = append_at_last(client, &topic, record(&number.to_string())).await;
        assert_eq!(seq, number as u64 / 10 + 1);
    }
    for client in &mut clients {
        for topic in 0..10 {
            let all = read_all(client, &format!("t{topic}"), 0).await;
            let wanted = (0..3).map(|round| (round * 10 + topic).to_string());
            assert!(all.into_iter().eq(wanted));
        }
    }
    for (number, client) in (1..).zip(&clients) {
        let committed = at_last(|| {
            let mut client = client.clone();
            let commits = vec![commit_of("t1", reader("g", "m"), number)];
            async move {
                let request = boltq_proto::stream::v1::CommitCursorRequest { commits };
                Ok(client.commit_cursor(request).await?.into_inner())
            }
        })
        .await;
        assert_eq!(committed.cursors[0].next_seq, number);
    }
}

/// Each tail sees every record once and in order, whichever node it is on, while leaders are killed.
#[tokio::test(flavor = "multi_thread")]
async fn chats_go_on_when_a_leader_is_killed() {
    const TOPICS: usize = 12;
    const RECORDS: usize = 60;
    let mut cluster = cluster();
    // The node that is killed has no clients of its own.
    let victim = cluster.leader();
    let others: Vec<_> = (0..3)
        .filter(|node| *node != victim)
        .map(|node| cluster.node(node).messaging())
        .collect();
    let mut tails = Vec::new();
    for topic in 0..TOPICS {
        let mut client = connect(others[topic % 2]).await;
        let mut tail = tail(&mut client, vec![source(&format!("chat-{topic}"), None)]).await;
        tails.push(tokio::spawn(async move { told_records(&mut tail, RECORDS).await }));
    }
    let senders: Vec<_> = (0..TOPICS)
        .map(|topic| {
            let address = others[(topic + 1) % 2];
            tokio::spawn(async move {
                let client = connect(address).await;
                for number in 0..RECORDS {
                    let payload = format!("{topic}-{number}");
                    // An answer that is lost is asked for again.
                    let record = NewRecord {
                        idempotency_key: payload.clone(),
                        ..record(&payload)
                    };
                    append_at_last(&client, &format!("chat-{topic}"), record).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.kill(victim);
    for sender in senders {
        sender.await.unwrap();
    }
    let wanted = |topic: usize| (0..RECORDS).map(move |number| format!("{topic}-{number}"));
    for (topic, tail) in tails.into_iter().enumerate() {
        let told = tail.await.unwrap();
        assert!(told.into_iter().eq((1..).zip(wanted(topic))), "chat-{topic}");
    }
    cluster.start_node(victim);
    cluster.await_settled();
    let mut client = connect(cluster.node(victim).messaging()).await;
    for topic in 0..TOPICS {
        assert!(
            read_all(&mut client, &format!("chat-{topic}"), 0)
                .await
                .into_iter()
                .eq(wanted(topic))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_replica_tells_what_it_has() {
    let mut cluster = cluster();
    let client = connect(cluster.node(0).messaging()).await;
    append_at_last(&client, "t", record("1")).await;
    let replica = cluster.add(false);
    cluster.await_settled();
    let mut there = connect(cluster.node(replica).messaging()).await;
    let mut tail = tail(&mut there, vec![source("t", None)]).await;
    assert_eq!(told_records(&mut tail, 1).await, [(1, "1".to_owned())]);
    append_at_last(&client, "t", record("2")).await;
    assert_eq!(told_records(&mut tail, 1).await, [(2, "2".to_owned())]);
    // What it is told to append, the leader appends.
    assert_eq!(append_at_last(&there, "t", record("3")).await, 3);
    assert_eq!(told_records(&mut tail, 1).await, [(3, "3".to_owned())]);
    let all = read(&mut there, page("t", None, 10)).await.unwrap();
    assert_eq!(all.end_seq, 4);
}
