//! Positions of readers: they never go back, and survive.

use boltq_proto::stream::v1::{
    CommitCursorRequest, DeleteCursorsRequest, DeleteTopicRequest, GetCursorsRequest, GetCursorsResponse,
};
use boltq_tests::harness::grpc::reason;
use boltq_tests::harness::{Server, ServerOptions};
use tonic::Code;

use super::client::{StreamClient, append, commit, commit_of, connect, options, put, reader, record, start};

async fn cursors(client: &mut StreamClient, request: GetCursorsRequest) -> GetCursorsResponse {
    client.get_cursors(request).await.unwrap().into_inner()
}

fn of(topic: &str) -> GetCursorsRequest {
    GetCursorsRequest {
        topic: topic.to_owned(),
        ..GetCursorsRequest::default()
    }
}

fn positions(response: &GetCursorsResponse) -> Vec<(String, String, u64, u64)> {
    let cursors = response.cursors.iter();
    cursors
        .map(|cursor| {
            let reader = cursor.reader.clone().unwrap();
            (reader.group, reader.member, cursor.next_seq, cursor.behind)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_never_goes_back_and_not_beyond_the_end() {
    let (_server, mut client) = start().await;
    append(&mut client, "t", vec![record("x"); 10]).await.unwrap();
    for (wanted, is) in [(5, 5), (3, 5), (0, 5), (9, 9), (u64::MAX, 11), (10, 11)] {
        assert_eq!(commit(&mut client, "t", reader("g", "m"), wanted).await, is, "{wanted}");
    }
    assert_eq!(commit(&mut client, "t", reader("g", "n"), 2).await, 2);
    let all = positions(&cursors(&mut client, of("t")).await);
    assert_eq!(all, [("g".into(), "m".into(), 11, 0), ("g".into(), "n".into(), 2, 9)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_survive_a_kill_and_go_with_their_topic() {
    let mut server = Server::start(&options(ServerOptions::disk()));
    let mut client = connect(server.messaging()).await;
    append(&mut client, "t", vec![record("x"); 10]).await.unwrap();
    let commits = (0..100).map(|number| commit_of("t", reader("g", &format!("m{number:02}")), number % 10 + 1));
    let request = CommitCursorRequest {
        commits: commits.collect(),
    };
    let response = client.commit_cursor(request).await.unwrap().into_inner();
    assert!(
        response
            .cursors
            .iter()
            .map(|cursor| cursor.next_seq)
            .eq((0..100).map(|number| number % 10 + 1))
    );
    for round in ["kill", "stop"] {
        match round {
            "kill" => server.kill(),
            _ => assert!(server.terminate().success()),
        }
        server.restart();
        client = connect(server.messaging()).await;
        let all = positions(&cursors(&mut client, of("t")).await);
        let wanted = (0..100u64).map(|number| ("g".into(), format!("m{number:02}"), number % 10 + 1, 10 - number % 10));
        assert!(all.into_iter().eq(wanted), "{round}");
    }
    let delete = DeleteTopicRequest { topic: "t".to_owned() };
    client.delete_topic(delete).await.unwrap();
    put(&mut client, "t", "x").await;
    assert!(cursors(&mut client, of("t")).await.cursors.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_are_listed_by_pages_of_all_groups_or_of_one() {
    let (_server, mut client) = start().await;
    put(&mut client, "t", "x").await;
    for group in ["a", "bb"] {
        for member in 0..5 {
            commit(&mut client, "t", reader(group, &format!("{group}/{member}")), 1).await;
        }
    }
    for (group, wanted) in [("", 10), ("a", 5), ("bb", 5), ("c", 0)] {
        let (mut token, mut all) = (String::new(), Vec::new());
        loop {
            let request = GetCursorsRequest {
                group: group.to_owned(),
                page_size: 2,
                page_token: token,
                ..of("t")
            };
            let response = cursors(&mut client, request).await;
            all.extend(positions(&response));
            token = response.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(all.len(), wanted, "{group}");
        assert!(all.is_sorted());
    }
    let bad = GetCursorsRequest {
        page_token: "x".to_owned(),
        ..of("t")
    };
    assert_eq!(client.get_cursors(bad).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_can_be_forgotten() {
    let (_server, mut client) = start().await;
    append(&mut client, "t", vec![record("x"); 3]).await.unwrap();
    for member in ["", "m", "n"] {
        commit(&mut client, "t", reader("g", member), 3).await;
    }
    commit(&mut client, "t", reader("h", "m"), 3).await;
    let delete = |member: Option<&str>| DeleteCursorsRequest {
        topic: "t".to_owned(),
        partition: 0,
        group: "g".to_owned(),
        member: member.map(str::to_owned),
    };
    for (member, deleted) in [(Some("m"), 1), (Some("m"), 0), (None, 2), (None, 0)] {
        let response = client.delete_cursors(delete(member)).await.unwrap();
        assert_eq!(response.into_inner().deleted, deleted, "{member:?}");
    }
    assert_eq!(
        positions(&cursors(&mut client, of("t")).await),
        [("h".into(), "m".into(), 3, 1)]
    );
    // One that was forgotten begins again.
    assert_eq!(commit(&mut client, "t", reader("g", "m"), 2).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_positions_are_refused_one_by_one() {
    let options = options(ServerOptions::memory())
        .set("messaging.stream.groups", 1)
        .set("messaging.stream.cursors_max", 1);
    let server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    put(&mut client, "t", "x").await;
    let mut no_partition = commit_of("t", reader("g", "m"), 1);
    no_partition.partition = 16;
    let commits = vec![
        commit_of("t", reader("g", "m"), 2),
        commit_of("u", reader("g", "m"), 2),
        no_partition,
        commit_of("t", reader("", "m"), 2),
        commit_of("t", reader("g", &"m".repeat(256)), 2),
        commit_of("t", reader("g", "n"), 2),
    ];
    let response = client
        .commit_cursor(CommitCursorRequest { commits })
        .await
        .unwrap()
        .into_inner();
    assert!(
        response
            .cursors
            .iter()
            .map(|cursor| cursor.next_seq)
            .eq([2, 0, 0, 0, 0, 0])
    );
    let failures: Vec<(u32, &str)> = response
        .failures
        .iter()
        .map(|failure| (failure.index, failure.reason.as_str()))
        .collect();
    let wanted = [
        (1, "TOPIC_NOT_FOUND"),
        (2, "NO_PARTITION"),
        (3, "INVALID_ARGUMENT"),
        (4, "INVALID_ARGUMENT"),
        (5, "CURSORS_FULL"),
    ];
    assert_eq!(failures, wanted);
    let none = client.commit_cursor(CommitCursorRequest::default()).await.unwrap_err();
    assert_eq!(
        (none.code(), reason(&none).as_str()),
        (Code::InvalidArgument, "INVALID_ARGUMENT")
    );
}
