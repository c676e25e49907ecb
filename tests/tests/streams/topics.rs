//! Topics: created by their first record or before, listed, changed, deleted.

use boltq_proto::stream::v1::{
    CreateTopicRequest, DeleteTopicRequest, GetTopicRequest, ListTopicsRequest, Retention, UpdateTopicRequest,
};
use boltq_tests::harness::grpc::{duration, reason};
use std::time::Duration;
use tonic::Code;

use super::client::{append, keyed, page, put, read, start};

fn create(topic: &str, partitions: u32) -> CreateTopicRequest {
    CreateTopicRequest {
        topic: topic.to_owned(),
        partitions,
        retention: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_created_once_and_its_partitions_are_decided_then() {
    let (_server, mut client) = start().await;
    let mut created = async |request| client.create_topic(request).await.map(tonic::Response::into_inner);
    assert!(created(create("t", 3)).await.unwrap().created);
    for partitions in [3, 0] {
        let again = created(create("t", partitions)).await.unwrap();
        assert_eq!((again.created, again.topic.unwrap().partitions), (false, 3));
    }
    let status = created(create("t", 4)).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::AlreadyExists, "TOPIC_EXISTS")
    );
    for (request, wanted) in [
        (create("u", 65_537), "INVALID_ARGUMENT"),
        (create("", 1), "INVALID_NAME"),
    ] {
        let status = created(request).await.unwrap_err();
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::InvalidArgument, wanted)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_listed_by_name_whatever_group_they_are_in() {
    let (_server, mut client) = start().await;
    for number in 0..30 {
        // Some with records in partitions of other groups.
        let records = vec![keyed(&format!("k{number}"), "x"), keyed("y", "z")];
        append(&mut client, &format!("t{number:02}"), records).await.unwrap();
    }
    let (mut token, mut names) = (String::new(), Vec::new());
    loop {
        let request = ListTopicsRequest {
            page_size: 7,
            page_token: token,
        };
        let page = client.list_topics(request).await.unwrap().into_inner();
        for topic in page.topics {
            assert_eq!((topic.partitions, topic.records), (16, 2), "{}", topic.name);
            names.push(topic.name);
        }
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert!(names.into_iter().eq((0..30).map(|number| format!("t{number:02}"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_topic_is_and_has_is_told() {
    let (_server, mut client) = start().await;
    client.create_topic(create("t", 3)).await.unwrap();
    append(
        &mut client,
        "t",
        vec![keyed("alice", "1"), keyed("alice", "2"), keyed("conv-0001", "3")],
    )
    .await
    .unwrap();
    let get = |topic: &str| GetTopicRequest {
        topic: topic.to_owned(),
        linearizable: true,
    };
    let told = client.get_topic(get("t")).await.unwrap().into_inner();
    let topic = told.topic.unwrap();
    assert_eq!((topic.partitions, topic.records), (3, 3));
    let ends: u64 = told.partitions.iter().map(|partition| partition.end_seq - 1).sum();
    let bytes: u64 = told.partitions.iter().map(|partition| partition.bytes).sum();
    assert_eq!((told.partitions.len(), ends, bytes), (3, 3, topic.bytes));
    let with_time = told
        .partitions
        .iter()
        .filter(|partition| partition.last_timestamp.is_some());
    assert!(with_time.count() >= 1);
    assert_eq!(client.get_topic(get("u")).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_topic_is_gone_from_all_groups_and_begins_again() {
    let (_server, mut client) = start().await;
    let keys = ["alice", "bob", "team-42", "conv-0001", "x", "y", "z"];
    let records = || keys.iter().map(|key| keyed(key, key)).collect::<Vec<_>>();
    let first = append(&mut client, "t", records()).await.unwrap();
    let delete = || DeleteTopicRequest { topic: "t".to_owned() };
    client.delete_topic(delete()).await.unwrap();
    assert_eq!(
        read(&mut client, page("t", None, 0)).await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(client.delete_topic(delete()).await.unwrap_err().code(), Code::NotFound);
    let again = append(&mut client, "t", records()).await.unwrap();
    let places = |positions: &[boltq_proto::stream::v1::Position]| -> Vec<(u32, u64)> {
        positions
            .iter()
            .map(|position| (position.partition, position.seq))
            .collect()
    };
    assert_eq!(places(&again), places(&first), "numbers begin at 1 again");
}

#[tokio::test(flavor = "multi_thread")]
async fn how_long_records_are_kept_can_be_changed() {
    let (_server, mut client) = start().await;
    put(&mut client, "t", "x").await;
    let update = |topic: &str, age: Option<Duration>| UpdateTopicRequest {
        topic: topic.to_owned(),
        retention: Some(Retention {
            max_age: age.and_then(duration),
            max_bytes: 1_000,
        }),
    };
    let hour = Some(Duration::from_secs(3_600));
    let topic = client
        .update_topic(update("t", hour))
        .await
        .unwrap()
        .into_inner()
        .topic
        .unwrap();
    let retention = topic.retention.unwrap();
    assert_eq!(
        (retention.max_age, retention.max_bytes),
        (duration(Duration::from_secs(3_600)), 1_000)
    );
    for (request, code) in [
        (update("u", hour), Code::NotFound),
        (update("t", Some(Duration::from_micros(1))), Code::InvalidArgument),
        (
            update("t", Some(Duration::from_secs(4_000_000_000))),
            Code::InvalidArgument,
        ),
        (
            UpdateTopicRequest {
                topic: "t".to_owned(),
                retention: None,
            },
            Code::InvalidArgument,
        ),
    ] {
        assert_eq!(client.update_topic(request).await.unwrap_err().code(), code);
    }
}
