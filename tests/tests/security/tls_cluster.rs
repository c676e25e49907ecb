//! Three nodes that speak TLS with their clients, and so with each other where they act as clients.

use std::time::Duration;

use boltq_proto::queue::v1::PublishRequest;
use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::grpc::{message, reason};
use boltq_tests::harness::tls::{Authority, channel, connect};
use boltq_tests::harness::{Cluster, Directory, ServerOptions, eventually, http};
use serde_json::json;
use tonic::Code;

use crate::keys::{ADMIN, CONSUMER, PRODUCER, options, with_key};

const WITHIN: Duration = Duration::from_secs(60);

struct Secured {
    cluster: Cluster,
    authority: Authority,
    leader: usize,
    _directory: Directory,
}

/// Each node believes the authority, and shows a certificate for localhost.
fn start(options: ServerOptions) -> Secured {
    let authority = Authority::new();
    let directory = Directory::new();
    let identity = authority.issue(directory.path(), "node");
    let options = authority
        .options(
            options.set("storage.mode", "disk").set("server.tcp_forward", true),
            &identity,
        )
        .set(
            "server.tls.ca_file",
            authority.write(directory.path()).to_str().unwrap(),
        )
        .set("server.tls.client_auth", "optional");
    let cluster = Cluster::start_with(3, &options);
    let leader = cluster.leader();
    Secured {
        cluster,
        authority,
        leader,
        _directory: directory,
    }
}

impl Secured {
    fn follower(&self) -> usize {
        (self.leader + 1) % 3
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_join_and_pass_requests_on_over_tls_with_the_rights_of_the_caller() {
    let secured = start(options());
    let follower = secured.cluster.node(secured.follower());
    let config = secured.authority.client(None, &["h2"]);
    let mut queues = QueueServiceClient::new(channel(follower.messaging(), config).await.unwrap());
    let publish = PublishRequest {
        queue: "q".to_owned(),
        message: Some(message("x")),
    };
    queues.publish(with_key(publish.clone(), PRODUCER)).await.unwrap();
    let denied = queues.publish(with_key(publish, CONSUMER)).await.unwrap_err();
    assert_eq!(
        (denied.code(), reason(&denied).as_str()),
        (Code::PermissionDenied, "ROLE_REQUIRED")
    );

    let admin = |key: &str, body: &str| {
        let stream = connect(follower.admin(), &secured.authority.client(None, &["http/1.1"])).unwrap();
        let headers = [("x-api-key", key)];
        http::request_over(stream, ("POST", "/publish/topic"), &headers, body.as_bytes())
            .unwrap()
            .status
    };
    let body = r#"{"topic":"t","payload":1}"#;
    assert_eq!([admin(PRODUCER, body), admin(CONSUMER, body)], [200, 403]);

    let mut client =
        BinaryClient::over_tls(connect(follower.messaging(), &secured.authority.client(None, &[])).unwrap());
    client
        .call(command::AUTH, &json!({"api_key": CONSUMER}).to_string())
        .ok();
    let taken = eventually(WITHIN, "a message through a follower", || client.consume("q"));
    client.ack(&taken.id).ok();
    assert!(
        client
            .call(command::PUBLISH, r#"{"topic":"q"}"#)
            .error()
            .contains("role producer")
    );
}

/// A crowd that guesses at a follower must not make the leader deaf for it.
#[tokio::test(flavor = "multi_thread")]
async fn who_guesses_at_a_follower_is_answered_there() {
    let secured = start(options().set("security.auth_failures_per_minute", 2));
    let follower = secured.cluster.node(secured.follower());
    let open = || BinaryClient::over_tls(connect(follower.messaging(), &secured.authority.client(None, &[])).unwrap());
    let auth = |client: &mut BinaryClient, key: &str| client.call(command::AUTH, &json!({"api_key": key}).to_string());
    let mut known = open();
    auth(&mut known, PRODUCER).ok();
    for _ in 0..4 {
        auth(&mut open(), "guess").error();
    }
    assert!(auth(&mut open(), ADMIN).error().starts_with("too many failed attempts"));
    known.publish("q", &json!(1));
    let leader = secured.cluster.node(secured.leader);
    let stream = connect(leader.admin(), &secured.authority.client(None, &["http/1.1"])).unwrap();
    let metrics = http::request_over(stream, ("GET", "/metrics"), &[], b"").unwrap();
    assert!(
        metrics.text().contains("\nboltq_authentications_failed_total 0\n"),
        "{}",
        metrics.text()
    );
}
