//! Weakness C6: one key was for everything. A key of each role does what it is for, at each door, and nothing else.

use boltq_proto::admin::v1::admin_service_client::AdminServiceClient;
use boltq_proto::admin::v1::{GetOverviewRequest, WatchOverviewRequest};
use boltq_proto::kv::v1::kv_service_client::KvServiceClient;
use boltq_proto::kv::v1::{FlushRequest, GetRequest, SetRequest};
use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_proto::queue::v1::{
    AckRequest, ConsumeRequest, ListQueuesRequest, PeekRequest, PublishRequest, PurgeQueueRequest, SubscribeRequest,
};
use boltq_proto::topic::v1::SubscribeRequest as TopicSubscribe;
use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use boltq_tests::harness::binary::{command, status};
use boltq_tests::harness::grpc::{channel, message, reason};
use boltq_tests::harness::{Server, http};
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::keys::{ADMIN, BOTH, CONSUMER, PRODUCER, binary, options, with_key};

/// What somebody with this key may do: publish, consume, purge.
const RIGHTS: [(&str, [bool; 3]); 4] = [
    (ADMIN, [true, true, true]),
    (PRODUCER, [true, false, false]),
    (CONSUMER, [false, true, false]),
    (BOTH, [true, true, false]),
];

#[track_caller]
fn check<T>(allowed: bool, role: &str, answer: Result<T, Status>) {
    match (allowed, answer) {
        (true, Ok(_)) => {}
        (true, Err(status)) => panic!("{status:?}"),
        (false, Ok(_)) => panic!("it needs {role}"),
        (false, Err(status)) => {
            assert_eq!(
                (status.code(), reason(&status).as_str()),
                (Code::PermissionDenied, "ROLE_REQUIRED")
            );
            assert!(
                status
                    .message()
                    .contains(&format!("needs a key with the role {role}; ")),
                "{status:?}"
            );
        }
    }
}

async fn start() -> (Server, Channel) {
    let server = Server::start(&options());
    let channel = channel(server.messaging()).await.unwrap();
    (server, channel)
}

#[tokio::test]
async fn calls_of_queues_need_the_role_that_they_are_for() {
    let (_server, channel) = start().await;
    let mut queues = QueueServiceClient::new(channel);
    let publish = PublishRequest {
        queue: "q".to_owned(),
        message: Some(message("x")),
    };
    let consume = ConsumeRequest {
        queue: "q".to_owned(),
        max_messages: 1,
        ..ConsumeRequest::default()
    };
    let peek = PeekRequest {
        queue: "q".to_owned(),
        max_messages: 1,
        ..PeekRequest::default()
    };
    let purge = PurgeQueueRequest { queue: "q".to_owned() };
    for (key, [publishes, consumes, administers]) in RIGHTS {
        check(
            publishes,
            "producer",
            queues.publish(with_key(publish.clone(), key)).await,
        );
        check(
            consumes,
            "consumer",
            queues.consume(with_key(consume.clone(), key)).await,
        );
        check(
            consumes,
            "consumer",
            accepted(queues.ack(with_key(AckRequest::default(), key)).await),
        );
        check(consumes, "consumer", queues.peek(with_key(peek.clone(), key)).await);
        check(
            administers,
            "admin",
            queues.purge_queue(with_key(purge.clone(), key)).await,
        );
        queues
            .list_queues(with_key(ListQueuesRequest::default(), key))
            .await
            .unwrap();
    }
}

/// Figures are for every key, at once and again and again, and for nobody without one.
#[tokio::test]
async fn an_overview_needs_any_key() {
    let (_server, channel) = start().await;
    let mut admin = AdminServiceClient::new(channel);
    for key in [ADMIN, PRODUCER, CONSUMER, BOTH] {
        let overview = admin.get_overview(with_key(GetOverviewRequest::default(), key)).await;
        assert_eq!(overview.unwrap().into_inner().overview.unwrap().health, "ok");
        let watch = admin
            .watch_overview(with_key(WatchOverviewRequest::default(), key))
            .await;
        assert!(watch.unwrap().into_inner().message().await.unwrap().is_some());
    }
    let refused = admin.watch_overview(WatchOverviewRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let refused = admin.get_overview(GetOverviewRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

/// What is refused for another reason than the key was let through.
fn accepted<T>(answer: Result<T, Status>) -> Result<(), Status> {
    match answer {
        Err(status) if status.code() != Code::InvalidArgument => Err(status),
        _ => Ok(()),
    }
}

/// Pitfall A8 of access control: a denied subscription has to be answered, and not to be silent.
#[tokio::test]
async fn a_denied_subscription_is_answered() {
    let (_server, channel) = start().await;
    let mut queues = QueueServiceClient::new(channel.clone());
    let first = tokio_stream::iter([SubscribeRequest::default()]);
    check(false, "consumer", queues.subscribe(with_key(first, PRODUCER)).await);
    let mut topics = TopicServiceClient::new(channel);
    let subscribe = TopicSubscribe {
        topic: "news".to_owned(),
        ..TopicSubscribe::default()
    };
    check(
        false,
        "consumer",
        topics.subscribe(with_key(subscribe.clone(), PRODUCER)).await,
    );
    check(true, "consumer", topics.subscribe(with_key(subscribe, CONSUMER)).await);
}

#[tokio::test]
async fn values_of_the_cache_are_for_every_key_and_emptying_it_is_not() {
    let (_server, channel) = start().await;
    let mut kv = KvServiceClient::new(channel);
    for (key, [_, _, administers]) in RIGHTS {
        let set = SetRequest {
            key: "k".to_owned(),
            value: "v".into(),
            ..SetRequest::default()
        };
        kv.set(with_key(set, key)).await.unwrap();
        let get = GetRequest { key: "k".to_owned() };
        kv.get(with_key(get, key)).await.unwrap();
        check(
            administers,
            "admin",
            kv.flush(with_key(FlushRequest::default(), key)).await,
        );
    }
}

#[test]
fn commands_of_the_binary_protocol_need_the_role_that_they_are_for() {
    let server = Server::start(&options());
    for (key, [publishes, consumes, administers]) in RIGHTS {
        let mut client = binary(&server, key);
        let message = r#"{"topic":"q","payload":1}"#;
        for (code, body, allowed, role) in [
            (command::PUBLISH, message, publishes, "producer"),
            (command::PUBLISH_TOPIC, message, publishes, "producer"),
            (
                command::PUBLISH_EXCHANGE,
                r#"{"routing_key":"q","payload":1}"#,
                publishes,
                "producer",
            ),
            (command::CONSUME, r#"{"topic":"q"}"#, consumes, "consumer"),
            (command::CONSUME, r#"{"topic":"t","id":"s"}"#, consumes, "consumer"),
            (command::ACK, r#"{"id":"x"}"#, consumes, "consumer"),
            (command::EXCHANGE_DECLARE, r#"{"name":"e"}"#, administers, "admin"),
            (command::EXCHANGE_DELETE, r#"{"name":"e"}"#, administers, "admin"),
            (command::CLUSTER_LEAVE, r#"{"node_id":"n"}"#, administers, "admin"),
        ] {
            let reply = client.call(code, body);
            let denied = reply.status == status::ERROR && reply.error().contains(" needs a key with the role ");
            assert_eq!(denied, !allowed, "{code:#04x} with {key}: {}", reply.text());
            assert!(
                allowed || reply.error().contains(&format!("role {role};")),
                "{}",
                reply.text()
            );
        }
        for code in [
            command::PING,
            command::STATS,
            command::CONFIRM_SELECT,
            command::CLUSTER_STATUS,
        ] {
            client.call(code, "{}").ok();
        }
    }
}

#[test]
fn what_is_denied_keeps_its_place_among_pipelined_requests() {
    let server = Server::start(&options());
    let mut client = binary(&server, CONSUMER);
    for (code, body) in [
        (command::PING, ""),
        (command::PUBLISH, r#"{"topic":"q"}"#),
        (command::CONSUME, r#"{"topic":"q"}"#),
        (command::PUBLISH, r#"{"topic":"q"}"#),
        (command::PING, ""),
    ] {
        client.send(code, body.as_bytes()).unwrap();
    }
    let replies: Vec<u8> = (0..5).map(|_| client.receive().unwrap().status).collect();
    assert_eq!(
        replies,
        [status::OK, status::ERROR, status::EMPTY, status::ERROR, status::OK]
    );
}

#[test]
fn another_key_on_the_same_connection_has_other_rights() {
    let server = Server::start(&options());
    let mut client = binary(&server, PRODUCER);
    client.publish("q", &json!(1));
    client
        .call(command::AUTH, &json!({"api_key": CONSUMER}).to_string())
        .ok();
    assert!(
        client
            .call(command::PUBLISH, r#"{"topic":"q"}"#)
            .error()
            .contains("producer")
    );
    assert_eq!(client.consume("q").unwrap().payload(), &json!(1));
}

#[test]
fn requests_to_the_admin_port_need_the_role_that_they_are_for() {
    let server = Server::start(&options());
    for (key, [publishes, consumes, administers]) in RIGHTS {
        let status = |method: &str, path: &str, body: &str| {
            let headers = [("x-api-key", key)];
            let response = http::request(server.admin(), method, path, &headers, body.as_bytes()).unwrap();
            if response.status == 403 {
                let text = response.json()["error"].as_str().unwrap().to_owned();
                assert!(text.contains(" needs a key with the role "), "{text}");
            }
            response.status
        };
        let wanted = |allowed: bool| if allowed { 200 } else { 403 };
        let message = r#"{"topic":"t","payload":1}"#;
        assert_eq!(status("POST", "/publish/topic", message), wanted(publishes), "{key}");
        assert_eq!(
            status("POST", "/exchange/declare", r#"{"name":"e"}"#),
            wanted(administers),
            "{key}"
        );
        assert_eq!(status("POST", "/cache/set", r#"{"key":"k","value":1}"#), 200, "{key}");
        assert_eq!(status("POST", "/cache/flush", ""), wanted(administers), "{key}");
        assert_eq!(status("GET", "/stats", ""), 200, "{key}");
        // Nothing is looked at before the role.
        assert_eq!(status("GET", "/subscribe", "") == 403, !consumes, "{key}");
        assert_eq!(status("POST", "/cluster/leave", "{}") == 403, !administers, "{key}");
        assert_eq!(
            status("GET", "/there/is/no/such/path", ""),
            if administers { 404 } else { 403 },
            "{key}"
        );
    }
}

#[test]
fn without_a_single_key_those_with_roles_are_wanted() {
    let server = Server::start(&options().set("security.api_key", ""));
    assert_eq!(http::get(server.admin(), "/stats").unwrap().status, 401);
    binary(&server, CONSUMER);
}
