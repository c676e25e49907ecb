//! Tails: old records, then new ones as they come, from several partitions, once each.

use boltq_proto::stream::v1::start::At;
use boltq_proto::stream::v1::tail_response::Event;
use boltq_proto::stream::v1::{DeleteTopicRequest, Start, TailRequest};
use boltq_tests::harness::grpc::{duration, reason};
use boltq_tests::harness::within;
use std::time::Duration;
use tonic::Code;

use super::client::{SOON, append, commit, from_seq, put, reader, record, source, start, tail, told, told_records};

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_tells_what_there_was_and_then_what_comes() {
    let (_server, mut client) = start().await;
    append(&mut client, "t", (1..=300).map(|n| record(&n.to_string())).collect())
        .await
        .unwrap();
    let mut tail = tail(&mut client, vec![source("t", from_seq(11))]).await;
    let (_, Event::Began(began)) = told(&mut tail).await else {
        panic!("not where it begins")
    };
    assert_eq!(
        (began.exists, began.first_seq, began.next_seq, began.end_seq),
        (true, 1, 11, 301)
    );
    let old = told_records(&mut tail, 290).await;
    assert!(old.into_iter().eq((11..=300u64).map(|n| (n, n.to_string()))));
    for number in 301..=320u64 {
        put(&mut client, "t", &number.to_string()).await;
        assert_eq!(told_records(&mut tail, 1).await, [(number, number.to_string())]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_begins_where_it_is_told() {
    let (_server, mut client) = start().await;
    append(&mut client, "t", (1..=10).map(|n| record(&n.to_string())).collect())
        .await
        .unwrap();
    commit(&mut client, "t", reader("g", "m"), 8).await;
    for (at, wanted) in [
        (At::End(true), 11),
        (At::Cursor(reader("g", "m")), 8),
        (At::Cursor(reader("g", "n")), 1),
    ] {
        let mut tail = tail(&mut client, vec![source("t", Some(Start { at: Some(at) }))]).await;
        let (_, Event::Began(began)) = told(&mut tail).await else {
            panic!("not where it begins")
        };
        assert_eq!(began.next_seq, wanted);
    }
}

/// In all groups: where a topic is at home is another one for each.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_comes_later_is_told_from_its_first_record_on() {
    let (_server, mut client) = start().await;
    let topics: Vec<String> = (0..20).map(|number| format!("later-{number}")).collect();
    let mut sources: Vec<_> = topics.iter().map(|topic| source(topic, None)).collect();
    // Of some, a partition that is not in the group of their home.
    for (number, source) in sources.iter_mut().enumerate() {
        source.partition = u32::try_from(number).unwrap() % 3;
    }
    let mut tail = tail(&mut client, sources.clone()).await;
    for number in 0..20 {
        let (source, Event::Began(began)) = told(&mut tail).await else {
            panic!("not where it begins")
        };
        assert_eq!((source, began.exists, began.next_seq), (number, false, 1));
    }
    for (number, wanted) in sources.iter().enumerate() {
        let mut new = record(&wanted.topic);
        new.partition = Some(wanted.partition);
        append(&mut client, &wanted.topic, vec![new]).await.unwrap();
        let (source, Event::Records(records)) = told(&mut tail).await else {
            panic!("no records")
        };
        assert_eq!(source as usize, number);
        assert_eq!(records.records[0].payload, wanted.topic.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_topic_ends_what_tells_it_and_no_more() {
    let (_server, mut client) = start().await;
    put(&mut client, "a", "1").await;
    put(&mut client, "b", "1").await;
    let mut tail = tail(&mut client, vec![source("a", None), source("b", None)]).await;
    told_records(&mut tail, 2).await;
    let delete = |topic: &str| DeleteTopicRequest {
        topic: topic.to_owned(),
    };
    client.delete_topic(delete("a")).await.unwrap();
    assert!(matches!(told(&mut tail).await, (0, Event::Ended(_))));
    // Another topic of the name is none of this tail's.
    assert_eq!(put(&mut client, "a", "new").await, 1);
    put(&mut client, "b", "2").await;
    assert_eq!(told_records(&mut tail, 1).await, [(2, "2".to_owned())]);
    client.delete_topic(delete("b")).await.unwrap();
    assert!(matches!(told(&mut tail).await, (1, Event::Ended(_))));
    let end = within(SOON, "the end", tail.message()).await;
    assert!(end.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_that_has_nothing_to_tell_says_where_it_is_if_it_is_asked_to() {
    let (_server, mut client) = start().await;
    put(&mut client, "t", "1").await;
    let request = TailRequest {
        sources: vec![source("t", None)],
        progress_interval: duration(Duration::from_secs(1)),
        ..TailRequest::default()
    };
    let mut tail = client.tail(request).await.unwrap().into_inner();
    told_records(&mut tail, 1).await;
    let (0, Event::Progress(progress)) = told(&mut tail).await else {
        panic!("no progress")
    };
    assert_eq!(progress.next_seq, 2);
}

/// Each of them gets everything in order, and once.
#[tokio::test(flavor = "multi_thread")]
async fn many_tails_of_one_partition_are_told_the_same() {
    let (_server, mut client) = start().await;
    let mut tails = Vec::new();
    for _ in 0..50 {
        tails.push(tail(&mut client, vec![source("t", None)]).await);
    }
    let readers: Vec<_> = tails
        .into_iter()
        .map(|mut tail| tokio::spawn(async move { told_records(&mut tail, 500).await }))
        .collect();
    for number in 1..=500 {
        put(&mut client, "t", &number.to_string()).await;
    }
    for reader in readers {
        let all = reader.await.unwrap();
        assert!(all.into_iter().eq((1..=500u64).map(|n| (n, n.to_string()))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_tailed_is_refused() {
    let (_server, mut client) = start().await;
    put(&mut client, "t", "1").await;
    let mut no_partition = source("t", None);
    no_partition.partition = 16;
    for (sources, wanted) in [
        (Vec::new(), "INVALID_ARGUMENT"),
        (vec![source("", None)], "INVALID_NAME"),
        (vec![source("t", None); 1_001], "INVALID_ARGUMENT"),
        (vec![no_partition], "NO_PARTITION"),
    ] {
        let request = TailRequest {
            sources,
            ..TailRequest::default()
        };
        let status = client.tail(request).await.unwrap_err();
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::InvalidArgument, wanted)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_ends_its_tails() {
    let (mut server, mut client) = start().await;
    let mut tail = tail(&mut client, vec![source("t", None)]).await;
    told(&mut tail).await;
    assert!(
        tokio::task::spawn_blocking(move || server.terminate().success())
            .await
            .unwrap()
    );
    let status = within(SOON, "the end", tail.message()).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::Unavailable, "STOPPED")
    );
}
