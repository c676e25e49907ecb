//! Records that are not to be kept go, and readers are told what is missing.

use std::time::Duration;

use boltq_proto::stream::v1::tail_response::Event;
use boltq_proto::stream::v1::{CreateTopicRequest, ReadResponse, Retention};
use boltq_tests::harness::grpc::duration;
use boltq_tests::harness::{Server, ServerOptions, eventually_async};

use super::client::{SOON, StreamClient, append, connect, from_seq, options, page, read, record, source, tail, told};

/// Reads from the first record on until `is_so`.
async fn head_until(client: &StreamClient, what: &str, is_so: impl Fn(&ReadResponse) -> bool) -> ReadResponse {
    eventually_async(SOON, what, || {
        let mut client = client.clone();
        let is_so = &is_so;
        async move {
            let head = read(&mut client, page("t", from_seq(1), 1)).await.unwrap();
            is_so(&head).then_some(head)
        }
    })
    .await
}

async fn create(client: &mut StreamClient, max_age: Option<Duration>, max_bytes: u64) {
    let request = CreateTopicRequest {
        topic: "t".to_owned(),
        partitions: 1,
        retention: Some(Retention {
            max_age: max_age.and_then(duration),
            max_bytes,
        }),
    };
    client.create_topic(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_the_bytes_goes_and_a_reader_below_is_told_the_gap() {
    let mut server = Server::start(&options(ServerOptions::disk()));
    let mut client = connect(server.messaging()).await;
    create(&mut client, None, 1 << 20).await;
    for _ in 0..40 {
        append(&mut client, "t", vec![record(&"x".repeat(1_000)); 100])
            .await
            .unwrap();
    }
    let head = head_until(&client, "old records that go", |head| head.first_seq > 2_000).await;
    assert_eq!(
        (head.end_seq, head.records[0].seq, head.next_seq),
        (4_001, head.first_seq, head.first_seq + 1)
    );
    let mut tail = tail(&mut client, vec![source("t", from_seq(5))]).await;
    let (_, Event::Began(began)) = told(&mut tail).await else {
        panic!("not where it begins")
    };
    assert_eq!((began.next_seq, began.first_seq), (5, head.first_seq));
    let (_, Event::Gap(gap)) = told(&mut tail).await else {
        panic!("no gap")
    };
    assert_eq!((gap.from_seq, gap.to_seq), (5, head.first_seq));
    let (_, Event::Records(records)) = told(&mut tail).await else {
        panic!("no records")
    };
    assert_eq!(records.records[0].seq, head.first_seq);
    server.kill();
    server.restart();
    let mut client = connect(server.messaging()).await;
    let after = read(&mut client, page("t", from_seq(1), 1)).await.unwrap();
    assert_eq!((after.first_seq, after.end_seq), (head.first_seq, head.end_seq));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_old_goes_although_nobody_appends_any_more() {
    let options = options(ServerOptions::memory()).set("messaging.stream.maintenance_interval", "100ms");
    let server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    create(&mut client, Some(Duration::from_millis(500)), 0).await;
    append(&mut client, "t", vec![record("x"); 10]).await.unwrap();
    let head = head_until(&client, "all records that go", |head| head.first_seq == 11).await;
    assert_eq!((head.records.len(), head.next_seq, head.end_seq), (0, 11, 11));
    // Numbers go on.
    assert_eq!(append(&mut client, "t", vec![record("y")]).await.unwrap()[0].seq, 11);
}
