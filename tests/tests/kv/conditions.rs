//! Compare and set, over gRPC.

use boltq_proto::kv::v1::set_request::Condition;
use boltq_proto::kv::v1::{DeleteRequest, SetRequest};
use boltq_tests::harness::grpc::reason;
use boltq_tests::harness::{Server, ServerOptions};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::client::{KvClient, connect, entry, put};

async fn set_if(client: &mut KvClient, value: &str, condition: Condition) -> Result<u64, Status> {
    let request = SetRequest {
        key: "k".to_owned(),
        value: value.to_owned().into(),
        ttl: None,
        condition: Some(condition),
    };
    client.set(request).await.map(|response| response.into_inner().version)
}

async fn delete_if(client: &mut KvClient, version: u64) -> Result<bool, Status> {
    let request = DeleteRequest {
        key: "k".to_owned(),
        if_version: Some(version),
    };
    client
        .delete(request)
        .await
        .map(|response| response.into_inner().deleted)
}

/// The refusal of a condition; returns the version that it names.
#[track_caller]
fn not_met<T: std::fmt::Debug>(result: Result<T, Status>) -> Option<u64> {
    let status = result.unwrap_err();
    assert_eq!(
        (status.code(), &*reason(&status)),
        (Code::FailedPrecondition, "CONDITION_NOT_MET")
    );
    let info = status.get_details_error_info().unwrap();
    info.metadata.get("version").map(|version| version.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_is_not_met_changes_nothing_and_names_what_there_is() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    assert_eq!(
        not_met(set_if(&mut client, "x", Condition::IfPresent(true)).await),
        None
    );
    assert_eq!(not_met(set_if(&mut client, "x", Condition::IfVersion(1)).await), None);
    assert_eq!(not_met(delete_if(&mut client, 1).await), None);
    assert!(entry(&mut client, "k").await.is_none());

    let first = set_if(&mut client, "1", Condition::IfAbsent(true)).await.unwrap();
    assert_eq!(
        not_met(set_if(&mut client, "x", Condition::IfAbsent(true)).await),
        Some(first)
    );
    let second = set_if(&mut client, "2", Condition::IfPresent(true)).await.unwrap();
    let third = set_if(&mut client, "3", Condition::IfVersion(second)).await.unwrap();
    assert!(first < second && second < third);
    assert_eq!(
        not_met(set_if(&mut client, "x", Condition::IfVersion(second)).await),
        Some(third)
    );
    assert_eq!(not_met(delete_if(&mut client, first).await), Some(third));
    let stored = entry(&mut client, "k").await.unwrap();
    assert_eq!((&stored.value[..], stored.version), (&b"3"[..], third));
    assert!(delete_if(&mut client, third).await.unwrap());
    // A key that comes back has another version, so who saw the old value notices.
    let back = set_if(&mut client, "1", Condition::IfAbsent(true)).await.unwrap();
    assert!(back > third);

    let refused = set_if(&mut client, "x", Condition::IfAbsent(false)).await.unwrap_err();
    assert_eq!(
        (refused.code(), &*reason(&refused)),
        (Code::InvalidArgument, "INVALID_ARGUMENT")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_set_the_same_version_one_succeeds() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    let mut version = put(&mut client, "k", "0").await;
    for _ in 0..10 {
        let trying = (0..8).map(|number: u32| {
            let mut client = client.clone();
            tokio::spawn(async move { set_if(&mut client, &number.to_string(), Condition::IfVersion(version)).await })
        });
        let mut set = Vec::new();
        for task in trying.collect::<Vec<_>>() {
            set.extend(task.await.unwrap());
        }
        assert_eq!(set.len(), 1, "{set:?}");
        version = set[0];
    }
}
