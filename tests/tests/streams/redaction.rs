//! Records whose content is taken away: nobody gets it any more, and it is in no file.

use std::fs;
use std::path::Path;

use boltq_proto::stream::v1::RedactRequest;
use boltq_tests::harness::grpc::reason;
use boltq_tests::harness::{Cluster, Server, ServerOptions, eventually_async};
use tonic::{Code, Status};

use super::client::{
    SOON, StreamClient, append, at_last, connect, contents, options, page, put, read, record, source, start, tail,
    told, told_records,
};

const SECRET: &str = "what ana wrote and wants back";

async fn redact(client: &mut StreamClient, topic: &str, seq: u64) -> Result<bool, Status> {
    let request = RedactRequest {
        topic: topic.to_owned(),
        partition: 0,
        seq,
    };
    Ok(client.redact(request).await?.into_inner().redacted)
}

/// Files under a directory that have the secret.
fn files_with_it(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with_it(&path));
        } else if let Ok(bytes) = fs::read(&path)
            && bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

async fn gone_from(dir: &Path) {
    eventually_async(SOON * 2, "files without the secret", || async {
        files_with_it(dir).is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_taken_away_is_in_no_file_and_its_neighbours_are() {
    let mut server = Server::start(&options(ServerOptions::disk()));
    let mut client = connect(server.messaging()).await;
    let records = vec![record("before"), record(SECRET), record("after")];
    append(&mut client, "t", records).await.unwrap();
    let data = server.directory().data();
    assert!(!files_with_it(&data).is_empty());

    assert!(redact(&mut client, "t", 2).await.unwrap());
    assert!(!redact(&mut client, "t", 2).await.unwrap(), "it is gone already");
    for round in ["", "kill", "stop"] {
        match round {
            "kill" => server.kill(),
            "stop" => assert!(server.terminate().success()),
            _ => {}
        }
        if !round.is_empty() {
            server.restart();
            client = connect(server.messaging()).await;
        }
        let response = read(&mut client, page("t", None, 0)).await.unwrap();
        let wanted = [(1, "before"), (2, ""), (3, "after")].map(|(seq, text)| (seq, text.to_owned()));
        assert_eq!(contents(&response), wanted, "{round}");
        let redacted: Vec<bool> = response.records.iter().map(|record| record.redacted).collect();
        assert_eq!(redacted, [false, true, false], "{round}");
        assert!(response.records[1].timestamp.is_none());
    }
    gone_from(&data).await;
    let response = read(&mut client, page("t", None, 0)).await.unwrap();
    assert_eq!(response.records[2].payload, "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_tells_the_place_and_not_what_was_there() {
    let (_server, mut client) = start().await;
    append(&mut client, "t", vec![record("1"), record(SECRET)])
        .await
        .unwrap();
    assert!(redact(&mut client, "t", 2).await.unwrap());
    let mut tail = tail(&mut client, vec![source("t", None)]).await;
    told(&mut tail).await;
    let told = told_records(&mut tail, 2).await;
    assert_eq!(told, [(1, "1".to_owned()), (2, String::new())]);
    assert_eq!(put(&mut client, "t", "3").await, 3);
    assert_eq!(told_records(&mut tail, 1).await, [(3, "3".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_not_cannot_be_taken_away() {
    let (_server, mut client) = start().await;
    put(&mut client, "t", "x").await;
    for (topic, seq, wanted) in [
        ("t", 2, "RECORD_NOT_FOUND"),
        ("t", 0, "RECORD_NOT_FOUND"),
        ("u", 1, "TOPIC_NOT_FOUND"),
    ] {
        let status = redact(&mut client, topic, seq).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, wanted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_it_goes_from_every_node() {
    let options = options(ServerOptions::disk()).set("messaging.stream.groups", 2);
    let cluster = Cluster::start_with(3, &options);
    cluster.await_settled();
    let client = connect(cluster.node(0).messaging()).await;
    for payload in ["before", SECRET, "after"] {
        at_last(|| {
            let (mut client, record) = (client.clone(), record(payload));
            async move { append(&mut client, "t", vec![record]).await }
        })
        .await;
    }
    let other = connect(cluster.node(1).messaging()).await;
    at_last(|| {
        let mut client = other.clone();
        async move { redact(&mut client, "t", 2).await }
    })
    .await;
    for node in cluster.nodes() {
        gone_from(&node.data()).await;
        let mut client = connect(node.messaging()).await;
        let response = read(&mut client, page("t", None, 0)).await.unwrap();
        assert_eq!(
            (response.records[1].redacted, &response.records[2].payload[..]),
            (true, &b"after"[..])
        );
    }
}
