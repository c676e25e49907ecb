//! Pages: from a sequence, a time, a position, and the ends.

use boltq_proto::stream::v1::start::At;
use boltq_proto::stream::v1::{ListTopicsRequest, ReadRequest, Start};
use boltq_tests::harness::grpc::reason;
use boltq_tests::harness::{Server, ServerOptions};
use tonic::Code;

use super::client::{append, commit, connect, contents, from_seq, options, page, put, read, reader, record, start};

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_each_other_without_a_hole_and_reading_takes_nothing_away() {
    let (_server, mut client) = start().await;
    let records = (1..=250).map(|number| record(&number.to_string()));
    append(&mut client, "t", records.collect()).await.unwrap();
    for _ in 0..2 {
        let (mut next, mut all) = (1, Vec::new());
        loop {
            let response = read(&mut client, page("t", from_seq(next), 100)).await.unwrap();
            assert_eq!((response.first_seq, response.end_seq), (1, 251));
            all.extend(contents(&response));
            next = response.next_seq;
            if next == response.end_seq {
                break;
            }
        }
        let wanted = (1..=250u64).map(|number| (number, number.to_string()));
        assert!(all.into_iter().eq(wanted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_can_begin_anywhere() {
    let (_server, mut client) = start().await;
    let mut times = Vec::new();
    for number in 1..=50 {
        let position = append(&mut client, "t", vec![record(&number.to_string())])
            .await
            .unwrap()
            .remove(0);
        times.push(position.timestamp.unwrap());
    }
    commit(&mut client, "t", reader("g", "m"), 31).await;
    let first_at = |at: At| Some(Start { at: Some(at) });
    let after = |mut time: prost_types::Timestamp| {
        time.nanos += 1;
        time
    };
    let mut cases = vec![
        (None, Some(1)),
        (from_seq(0), Some(1)),
        (from_seq(17), Some(17)),
        (from_seq(51), None),
        (from_seq(u64::MAX), None),
        (first_at(At::End(true)), None),
        (first_at(At::Cursor(reader("g", "m"))), Some(31)),
        (first_at(At::Cursor(reader("g", "nobody"))), Some(1)),
        (first_at(At::Time(prost_types::Timestamp::default())), Some(1)),
        (first_at(At::Time(after(times[49]))), None),
    ];
    for (index, time) in times.iter().enumerate() {
        cases.push((
            first_at(At::Time(*time)),
            times.iter().position(|at| at == time).map(|at| at as u64 + 1),
        ));
        if let Some(next) = times.get(index + 1).filter(|next| *next != time) {
            let wanted = times.iter().position(|at| at == next).map(|at| at as u64 + 1);
            cases.push((first_at(At::Time(after(*time))), wanted));
        }
    }
    for (start, wanted) in cases {
        let response = read(&mut client, page("t", start.clone(), 1)).await.unwrap();
        let first = response.records.first().map(|record| record.seq);
        assert_eq!(first, wanted, "{start:?}");
        assert_eq!(response.next_seq, wanted.map_or(51, |seq| seq + 1), "{start:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_creates_nothing_and_says_what_is_wrong() {
    let (_server, mut client) = start().await;
    put(&mut client, "t", "x").await;
    let of = |topic: &str, partition| ReadRequest {
        partition,
        ..page(topic, None, 0)
    };
    let end_is_false = Some(Start {
        at: Some(At::End(false)),
    });
    for (request, code, wanted, text) in [
        (of("u", 0), Code::NotFound, "TOPIC_NOT_FOUND", "topic \"u\" not found"),
        (
            of("t", 16),
            Code::InvalidArgument,
            "NO_PARTITION",
            "has the partitions 0 to 15, and not 16",
        ),
        (
            page("t", None, 1_001),
            Code::InvalidArgument,
            "INVALID_ARGUMENT",
            "max_records is 1001",
        ),
        (
            page("t", end_is_false, 1),
            Code::InvalidArgument,
            "INVALID_ARGUMENT",
            "start.end is false",
        ),
    ] {
        let status = read(&mut client, request).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (code, wanted));
        assert!(status.message().contains(text), "{status:?}");
    }
    // A partition that has nothing is empty, and no error.
    let empty = read(&mut client, of("t", 7)).await.unwrap();
    assert_eq!(
        (empty.records.len(), empty.first_seq, empty.next_seq, empty.end_seq),
        (0, 1, 1, 1)
    );
    let topics = client
        .list_topics(ListTopicsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let names: Vec<&str> = topics.topics.iter().map(|topic| topic.name.as_str()).collect();
    assert_eq!(names, ["t"]);
}

/// More than the cache holds, so that most of it comes from files.
#[tokio::test(flavor = "multi_thread")]
async fn old_records_come_from_the_disk() {
    let options = options(ServerOptions::disk())
        .set("storage.cache_bytes", 65_536)
        .set("storage.wal_file_bytes", 262_144);
    let server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    let payload = |number: u64| format!("{number:0>1000}");
    for batch in 0..20u64 {
        let records = (1..=100).map(|number| record(&payload(batch * 100 + number)));
        append(&mut client, "t", records.collect()).await.unwrap();
    }
    let mut next = 1;
    while next <= 2_000 {
        let response = read(&mut client, page("t", from_seq(next), 1_000)).await.unwrap();
        for (seq, content) in contents(&response) {
            assert_eq!((seq, content), (next, payload(next)));
            next += 1;
        }
    }
    for seq in [1_999, 3, 1_000, 500] {
        let response = read(&mut client, page("t", from_seq(seq), 1)).await.unwrap();
        assert_eq!(contents(&response), [(seq, payload(seq))]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_plane_its_calls_say_how_to_get_it() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let status = read(&mut client, page("t", None, 0)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("set messaging.stream.enabled"), "{status:?}");
}
