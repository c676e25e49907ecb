//! A node that is alone by configuration has no cluster, and says so before it looks at anything else.

use boltq_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use boltq_proto::cluster::v1::{
    GetStatusRequest, GetStatusResponse, JoinRequest, LeaveRequest, TransferLeadershipRequest,
};
use boltq_tests::harness::grpc::{channel, reason};
use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::json;
use tonic::{Code, Status};

const CHANGES: [&str; 3] = ["/cluster/join", "/cluster/leave", "/cluster/transfer"];

fn server() -> Server {
    Server::start(&ServerOptions::memory())
}

#[test]
fn the_status_has_one_member() {
    let server = server();
    let response = http::get(server.admin(), "/cluster/status").unwrap();
    assert_eq!((response.status, response.text()), (200, r#"{"enabled":false}"#));
}

#[test]
fn changes_are_refused_before_the_body_is_read() {
    let server = server();
    for path in CHANGES {
        for body in [&b""[..], b"{", br#"{"node_id":"n4","addr":"10.0.0.4:9100"}"#] {
            let response = http::request(server.admin(), "POST", path, &[], body).unwrap();
            let wanted = json!({"error": "clustering is not enabled"});
            assert_eq!((response.status, response.json()), (400, wanted), "{path}");
        }
    }
}

/// CORS, then the key, then the method, then whether there is a cluster.
#[test]
fn checks_come_in_the_order_of_the_specification() {
    let server = Server::start(&ServerOptions::memory().set("security.api_key", "secret"));
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        http::request(server.admin(), method, path, headers, b"").unwrap()
    };
    let key = [("x-api-key", "secret")];
    for path in CHANGES {
        assert_eq!(ask("OPTIONS", path, &[]).status, 204, "{path}");
        assert_eq!(ask("GET", path, &[]).status, 401, "{path}");
        assert_eq!(
            ask("POST", path, &[]).json(),
            json!({"error": "unauthorized"}),
            "{path}"
        );
        let wrong = ask("GET", path, &key);
        assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")), "{path}");
        assert_eq!(wrong.json(), json!({"error": "method not allowed"}), "{path}");
        assert_eq!(ask("POST", path, &key).status, 400, "{path}");
    }
    assert_eq!(ask("GET", "/cluster/status", &[]).status, 401);
    assert_eq!(ask("POST", "/cluster/status", &key).status, 405);
    assert_eq!(ask("GET", "/cluster/status", &key).status, 200);
}

#[test]
fn statistics_and_metrics_do_not_mention_a_cluster() {
    let server = server();
    let stats = http::get(server.admin(), "/stats").unwrap().json();
    assert!(stats.get("cluster").is_none(), "{stats}");
    let metrics = http::get(server.admin(), "/metrics").unwrap();
    for name in ["boltq_raft_term", "boltq_brokers_total"] {
        assert!(!metrics.text().contains(name), "{name}");
    }
}

#[tokio::test]
async fn grpc_calls_say_that_clustering_is_off() {
    let server = server();
    let mut client = ClusterServiceClient::new(channel(server.messaging()).await.unwrap());
    let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status, GetStatusResponse::default());
    let refused = |status: Status| {
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::FailedPrecondition, "CLUSTERING_NOT_ENABLED")
        );
        assert_eq!(status.message(), "clustering is not enabled");
    };
    refused(client.join(JoinRequest::default()).await.unwrap_err());
    refused(client.leave(LeaveRequest::default()).await.unwrap_err());
    refused(
        client
            .transfer_leadership(TransferLeadershipRequest::default())
            .await
            .unwrap_err(),
    );
}
