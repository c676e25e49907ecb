//! The calls that nearly every test makes.

use std::net::SocketAddr;
use std::time::Duration;

use boltq_proto::stream::v1::start::At;
use boltq_proto::stream::v1::stream_service_client::StreamServiceClient;
use boltq_proto::stream::v1::tail_response::Event;
use boltq_proto::stream::v1::{
    AppendRequest, CommitCursorRequest, CursorCommit, NewRecord, Position, ReadRequest, ReadResponse, Reader, Start,
    TailRequest, TailResponse, TailSource,
};
use boltq_tests::harness::grpc::channel;
use boltq_tests::harness::{Server, ServerOptions, eventually_async, within};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) type StreamClient = StreamServiceClient<Channel>;

/// Options of a server with the plane.
pub(crate) fn options(options: ServerOptions) -> ServerOptions {
    options.set("messaging.stream.enabled", true)
}

/// A server in memory, and a client of it.
pub(crate) async fn start() -> (Server, StreamClient) {
    let server = Server::start(&options(ServerOptions::memory()));
    let client = connect(server.messaging()).await;
    (server, client)
}

pub(crate) async fn connect(address: SocketAddr) -> StreamClient {
    StreamServiceClient::new(channel(address).await.unwrap())
}

pub(crate) fn record(payload: &str) -> NewRecord {
    NewRecord {
        payload: payload.to_owned().into(),
        ..NewRecord::default()
    }
}

pub(crate) fn keyed(key: &str, payload: &str) -> NewRecord {
    NewRecord {
        key: key.to_owned(),
        ..record(payload)
    }
}

/// Appends records.
pub(crate) async fn append(
    client: &mut StreamClient,
    topic: &str,
    records: Vec<NewRecord>,
) -> Result<Vec<Position>, Status> {
    let request = AppendRequest {
        topic: topic.to_owned(),
        records,
    };
    Ok(client.append(request).await?.into_inner().positions)
}

/// Appends a record to partition 0, which has to succeed.
pub(crate) async fn put(client: &mut StreamClient, topic: &str, payload: &str) -> u64 {
    append(client, topic, vec![record(payload)]).await.unwrap()[0].seq
}

/// What a node answers as soon as it can.
pub(crate) async fn at_last<T, F: Future<Output = Result<T, Status>>>(mut ask: impl FnMut() -> F) -> T {
    eventually_async(SOON, "an answer", || {
        let asked = ask();
        async {
            match asked.await {
                Err(status) if status.code() == Code::Unavailable => None,
                answer => Some(answer.unwrap()),
            }
        }
    })
    .await
}

pub(crate) fn from_seq(seq: u64) -> Option<Start> {
    Some(Start { at: Some(At::Seq(seq)) })
}

pub(crate) fn page(topic: &str, start: Option<Start>, max_records: u32) -> ReadRequest {
    ReadRequest {
        topic: topic.to_owned(),
        start,
        max_records,
        ..ReadRequest::default()
    }
}

pub(crate) async fn read(client: &mut StreamClient, request: ReadRequest) -> Result<ReadResponse, Status> {
    Ok(client.read(request).await?.into_inner())
}

/// Sequences and payloads of a page.
pub(crate) fn contents(response: &ReadResponse) -> Vec<(u64, String)> {
    let records = response.records.iter();
    records
        .map(|record| (record.seq, String::from_utf8(record.payload.to_vec()).unwrap()))
        .collect()
}

/// All of a partition, page by page, without a hole.
pub(crate) async fn read_all(client: &mut StreamClient, topic: &str, partition: u32) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let request = ReadRequest {
            partition,
            linearizable: true,
            ..page(topic, from_seq(all.len() as u64 + 1), 1_000)
        };
        let response = at_last(|| {
            let (mut client, request) = (client.clone(), request.clone());
            async move { read(&mut client, request).await }
        })
        .await;
        for (seq, payload) in contents(&response) {
            assert_eq!(seq, all.len() as u64 + 1);
            all.push(payload);
        }
        if response.next_seq == response.end_seq {
            return all;
        }
    }
}

pub(crate) fn source(topic: &str, start: Option<Start>) -> TailSource {
    TailSource {
        topic: topic.to_owned(),
        partition: 0,
        start,
    }
}

pub(crate) async fn tail(client: &mut StreamClient, sources: Vec<TailSource>) -> Streaming<TailResponse> {
    let request = TailRequest {
        sources,
        ..TailRequest::default()
    };
    client.tail(request).await.unwrap().into_inner()
}

/// What a tail tells next.
pub(crate) async fn told(tail: &mut Streaming<TailResponse>) -> (u32, Event) {
    let response = within(SOON, "something to be told", tail.message()).await;
    let response = response.unwrap().expect("the tail goes on");
    (response.source, response.event.unwrap())
}

/// The next records that a tail tells, at least so many.
pub(crate) async fn told_records(tail: &mut Streaming<TailResponse>, count: usize) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    while all.len() < count {
        match told(tail).await.1 {
            Event::Records(records) => all.extend(contents(&records)),
            Event::Began(_) => {}
            other => panic!("{other:?}"),
        }
    }
    all
}

pub(crate) fn reader(group: &str, member: &str) -> Reader {
    Reader {
        group: group.to_owned(),
        member: member.to_owned(),
    }
}

pub(crate) fn commit_of(topic: &str, reader: Reader, next_seq: u64) -> CursorCommit {
    CursorCommit {
        topic: topic.to_owned(),
        partition: 0,
        reader: Some(reader),
        next_seq,
    }
}

/// Commits one position, which has to succeed; returns where it is.
pub(crate) async fn commit(client: &mut StreamClient, topic: &str, reader: Reader, next_seq: u64) -> u64 {
    let commits = vec![commit_of(topic, reader, next_seq)];
    let response = client.commit_cursor(CommitCursorRequest { commits }).await.unwrap();
    let response = response.into_inner();
    assert!(response.failures.is_empty(), "{response:?}");
    response.cursors[0].next_seq
}
