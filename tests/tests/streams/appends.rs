//! Appending: numbers without gaps, places by key, keys that make it repeatable, and what is refused.

use std::collections::HashMap;

use boltq_proto::stream::v1::{AppendStreamRequest, CreateTopicRequest, NewRecord};
use boltq_tests::harness::grpc::reason;
use boltq_tests::harness::{Server, ServerOptions};
use futures_util::StreamExt;
use tonic::Code;

use super::client::{append, connect, contents, from_seq, keyed, options, page, put, read, record, start};

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_partition_are_numbered_without_gaps_and_their_times_never_go_back() {
    let (_server, mut client) = start().await;
    let mut last = None;
    for number in 1..=20 {
        let position = append(&mut client, "t", vec![record("x")]).await.unwrap().remove(0);
        assert_eq!(
            (position.partition, position.seq, position.duplicate),
            (0, number, false)
        );
        let time = position.timestamp.map(|time| (time.seconds, time.nanos));
        assert!(time >= last, "{time:?} after {last:?}");
        last = time;
    }
    let batch = append(&mut client, "t", vec![record("y"); 1_000]).await.unwrap();
    assert!(batch.iter().map(|position| position.seq).eq(21..1_021));
}

/// The keys and partitions are those of the protocol.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_says_which_partition_and_order_is_kept_in_it() {
    let (_server, mut client) = start().await;
    let keys = [
        ("alice", 7),
        ("bob", 4),
        ("alice:bob", 6),
        ("team-42", 5),
        ("conv-0001", 1),
        ("général", 15),
        ("", 0),
    ];
    for round in 1..=3 {
        let records = keys.iter().map(|(key, _)| keyed(key, &format!("{key} {round}")));
        let positions = append(&mut client, "t", records.collect()).await.unwrap();
        for (position, (key, partition)) in positions.iter().zip(keys) {
            assert_eq!((position.partition, position.seq), (partition, round), "{key}");
        }
    }
    for (key, partition) in keys {
        let mut request = page("t", None, 0);
        request.partition = partition;
        let response = read(&mut client, request).await.unwrap();
        let wanted: Vec<(u64, String)> = (1..=3).map(|round| (round, format!("{key} {round}"))).collect();
        assert_eq!(contents(&response), wanted);
        assert!(response.records.iter().all(|record| record.key == key));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_keeps_its_headers_and_its_content_type() {
    let (_server, mut client) = start().await;
    let with = |content_type: &str, payload: &str| NewRecord {
        content_type: content_type.to_owned(),
        headers: [("a".to_owned(), "1".to_owned())].into(),
        ..record(payload)
    };
    let records = vec![
        with("application/json", "{\"a\":1}"),
        with("text/plain", "{"),
        with("", ""),
    ];
    append(&mut client, "t", records).await.unwrap();
    let response = read(&mut client, page("t", None, 0)).await.unwrap();
    let types: Vec<&str> = response
        .records
        .iter()
        .map(|record| record.content_type.as_str())
        .collect();
    assert_eq!(types, ["application/json", "text/plain", ""]);
    let headers = [("a".to_owned(), "1".to_owned())].into();
    assert!(response.records.iter().all(|record| record.headers == headers));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_with_a_key_is_stored_once_also_after_a_restart() {
    let mut server = Server::start(&options(ServerOptions::disk()));
    let once = |key: &str, payload: &str| NewRecord {
        idempotency_key: key.to_owned(),
        ..record(payload)
    };
    let mut client = connect(server.messaging()).await;
    let first = append(&mut client, "t", vec![once("k", "first"), once("l", "other")])
        .await
        .unwrap();
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
        let again = append(&mut client, "t", vec![once("k", "again")])
            .await
            .unwrap()
            .remove(0);
        assert!(again.duplicate);
        assert_eq!(
            (again.seq, again.timestamp),
            (first[0].seq, first[0].timestamp),
            "{round}"
        );
    }
    // The key counts in its partition: elsewhere it is another record.
    let elsewhere = append(&mut client, "u", vec![once("k", "u")]).await.unwrap().remove(0);
    assert!(!elsewhere.duplicate);
    let response = read(&mut client, page("t", None, 0)).await.unwrap();
    assert_eq!(contents(&response), [(1, "first".to_owned()), (2, "other".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_batches_goes_to_any_topics_and_is_answered_in_order() {
    let (_server, mut client) = start().await;
    let topic_of = |number: usize| format!("t{}", number % 7);
    let requests = (0..50usize).map(move |batch| AppendStreamRequest {
        topic: if batch == 0 { "first".to_owned() } else { String::new() },
        records: (0..20)
            .map(|record_number| record(&format!("{}", batch * 20 + record_number)))
            .collect(),
        // Of every second batch, all records say where they go.
        topics: match batch % 2 {
            0 => Vec::new(),
            _ => (0..20).map(|number| topic_of(batch * 20 + number)).collect(),
        },
    });
    let mut answers = client
        .append_stream(futures_util::stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let (mut batches, mut next) = (0, HashMap::new());
    while let Some(answer) = answers.next().await {
        let answer = answer.unwrap();
        batches += 1;
        assert_eq!((answer.batch, answer.seqs.len()), (batches, 20));
        assert!(answer.failures.is_empty() && answer.duplicates.is_empty());
        let batch = usize::try_from(batches).unwrap() - 1;
        for (index, seq) in answer.seqs.iter().enumerate() {
            let topic = if batch % 2 == 0 {
                "first".to_owned()
            } else {
                topic_of(batch * 20 + index)
            };
            let next = next.entry(topic.clone()).or_insert(1);
            assert_eq!(seq, next, "{topic}");
            *next += 1;
        }
    }
    assert_eq!((batches, next.len(), next["first"]), (50, 8, 501));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_refused_keeps_no_others_of_its_batch_from_being_stored() {
    let (_server, mut client) = start().await;
    let long = NewRecord {
        key: "k".repeat(201),
        ..record("too long a key")
    };
    let nowhere = NewRecord {
        partition: Some(16),
        ..record("no such partition")
    };
    let no_json = NewRecord {
        content_type: "application/json".to_owned(),
        ..record("{")
    };
    let request = AppendStreamRequest {
        topic: "t".to_owned(),
        records: vec![record("1"), long, nowhere, no_json, record("2")],
        topics: Vec::new(),
    };
    let answers = client
        .append_stream(futures_util::stream::iter([request]))
        .await
        .unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();
    assert_eq!(answer.seqs, [1, 0, 0, 0, 2]);
    let failures: Vec<(u32, &str, bool)> = answer
        .failures
        .iter()
        .map(|failure| (failure.index, failure.reason.as_str(), failure.retriable))
        .collect();
    let wanted = [
        (1, "INVALID_ARGUMENT", false),
        (2, "NO_PARTITION", false),
        (3, "INVALID_ARGUMENT", false),
    ];
    assert_eq!(failures, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_with_what_is_wrong_and_nothing_is_created() {
    let (_server, mut client) = start().await;
    let with = |record: NewRecord| vec![record];
    let cases = [
        ("", with(record("x")), "INVALID_NAME", "topic "),
        ("a\nb", with(record("x")), "INVALID_NAME", "topic "),
        (
            "t",
            Vec::new(),
            "INVALID_ARGUMENT",
            "0 records in a batch; 1 to 1000 are allowed",
        ),
        (
            "t",
            vec![record("x"); 1_001],
            "INVALID_ARGUMENT",
            "1001 records in a batch",
        ),
        (
            "t",
            with(keyed(&"k".repeat(201), "x")),
            "INVALID_ARGUMENT",
            "key has 201 bytes; at most 200",
        ),
        (
            "t",
            with(NewRecord {
                partition: Some(0),
                ..keyed("k", "x")
            }),
            "INVALID_ARGUMENT",
            "key and partition are both set",
        ),
        (
            "t",
            with(NewRecord {
                partition: Some(16),
                ..record("x")
            }),
            "NO_PARTITION",
            "partitions 0 to 15, and not 16",
        ),
        (
            "t",
            with(NewRecord {
                idempotency_key: "k".repeat(201),
                ..record("x")
            }),
            "INVALID_IDEMPOTENCY_KEY",
            "idempotency key has 201 bytes",
        ),
        (
            "t",
            with(NewRecord {
                headers: [("k".to_owned(), "v".repeat(70_000))].into(),
                ..record("x")
            }),
            "HEADERS_TOO_LARGE",
            "headers have 70001 bytes",
        ),
    ];
    for (topic, records, wanted, text) in cases {
        let status = append(&mut client, topic, records).await.unwrap_err();
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::InvalidArgument, wanted)
        );
        assert!(status.message().contains(text), "{status:?}");
    }
    let status = read(&mut client, page("t", None, 0)).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::NotFound, "TOPIC_NOT_FOUND")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn full_tables_refuse_by_name_and_repeats_are_answered_still() {
    let options = options(ServerOptions::memory())
        .set("messaging.stream.groups", 1)
        .set("messaging.stream.dedup_max_keys", 2);
    let server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    let once = |key: &str| NewRecord {
        idempotency_key: key.to_owned(),
        ..record("x")
    };
    append(&mut client, "t", vec![once("a"), once("b")]).await.unwrap();
    let status = append(&mut client, "t", vec![once("c")]).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::ResourceExhausted, "IDEMPOTENCY_KEYS_FULL")
    );
    assert!(append(&mut client, "t", vec![once("a")]).await.unwrap()[0].duplicate);
    assert_eq!(put(&mut client, "t", "without a key").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_records_are_stored_and_read() {
    let (_server, mut client) = start().await;
    let payload = "x".repeat(3 << 20);
    for _ in 0..3 {
        put(&mut client, "t", &payload).await;
    }
    let mut seen = 0;
    while seen < 3 {
        // One fits into an answer.
        let response = read(&mut client, page("t", from_seq(seen + 1), 10)).await.unwrap();
        assert_eq!((response.records.len(), response.next_seq), (1, seen + 2));
        assert_eq!(response.records[0].payload.len(), payload.len());
        seen += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_partition_by_default_has_one_if_the_topic_says_so() {
    let (_server, mut client) = start().await;
    let request = CreateTopicRequest {
        topic: "t".to_owned(),
        partitions: 20,
        retention: None,
    };
    assert!(client.create_topic(request).await.unwrap().into_inner().created);
    let last = NewRecord {
        partition: Some(19),
        ..record("x")
    };
    let position = append(&mut client, "t", vec![last]).await.unwrap().remove(0);
    assert_eq!((position.partition, position.seq), (19, 1));
}
