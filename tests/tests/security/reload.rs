//! Pitfalls A2 and A6 of access control: what changes while the server runs, and what happens to whom it concerns.

use std::time::Duration;

use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_proto::queue::v1::{ConsumeRequest, ListQueuesRequest, SubscribeInit, SubscribeRequest, subscribe_request};
use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::grpc::{channel, duration, message, reason};
use boltq_tests::harness::tls::{Authority, connect};
use boltq_tests::harness::{Server, ServerOptions, eventually, http};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tonic::Code;

use crate::keys::{ADMIN, CONSUMER, PRODUCER, binary, consumer, options, producer, with_key};
use crate::tls::start as start_with_tls;

const WITHIN: Duration = Duration::from_secs(30);

/// Waits for a line of the log that was not there before.
fn reload(server: &Server, options: &ServerOptions) {
    let before = lines(server);
    server.reload(options);
    eventually(WITHIN, "the configuration is read again", || {
        (lines(server) > before).then_some(())
    });
}

/// How often the configuration was read again, or could not be.
fn lines(server: &Server) -> usize {
    let log = server.log();
    log.matches("read the configuration again").count() + log.matches("the configuration cannot be used").count()
}

fn status(server: &Server, key: &str) -> u16 {
    http::request(server.admin(), "GET", "/stats", &[("x-api-key", key)], b"")
        .unwrap()
        .status
}

#[test]
fn a_new_key_opens_and_an_old_one_no_longer_does() {
    let server = Server::start(&options());
    reload(
        &server,
        &options()
            .set("security.api_key", "another key")
            .set("security.keys", json!([producer()])),
    );
    assert_eq!(
        [
            status(&server, ADMIN),
            status(&server, CONSUMER),
            status(&server, PRODUCER),
            status(&server, "another key")
        ],
        [401, 401, 200, 200]
    );
}

/// Pitfall A2: rights were checked when a subscription began, and never again.
#[tokio::test]
async fn who_has_a_key_that_is_gone_gets_nothing_more_on_any_path() {
    let server = Server::start(&options());
    let mut removed = binary(&server, CONSUMER);
    removed.call(command::CONSUME, r#"{"topic":"news","id":"a"}"#).ok();
    let mut kept = binary(&server, PRODUCER);
    let mut queues = QueueServiceClient::new(channel(server.messaging()).await.unwrap());
    let init = SubscribeRequest {
        request: Some(subscribe_request::Request::Init(SubscribeInit {
            queue: "q".to_owned(),
            ..SubscribeInit::default()
        })),
    };
    let first = futures_util::StreamExt::chain(tokio_stream::iter([init]), tokio_stream::pending());
    let mut stream = queues.subscribe(with_key(first, CONSUMER)).await.unwrap().into_inner();
    let mut waiting = queues.clone();
    let polling = tokio::spawn(async move {
        let consume = ConsumeRequest {
            queue: "q2".to_owned(),
            max_messages: 1,
            wait: duration(Duration::from_secs(60)),
            ..ConsumeRequest::default()
        };
        waiting.consume(with_key(consume, CONSUMER)).await
    });
    let admin = server.admin();
    let polling_over_http = std::thread::spawn(move || {
        let headers = [("x-api-key", CONSUMER)];
        http::request(admin, "GET", "/consume?topic=q3&wait=60s", &headers, b"").unwrap()
    });
    let mut events = std::net::TcpStream::connect(server.admin()).unwrap();
    let request = format!(
        "GET /subscribe?topic=news&id=b HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: {CONSUMER}\r\n\r\n"
    );
    std::io::Write::write_all(&mut events, request.as_bytes()).unwrap();
    eventually(WITHIN, "two subscribers", || {
        let stats = http::request(server.admin(), "GET", "/stats", &[("x-api-key", ADMIN)], b"")
            .unwrap()
            .json();
        (stats["Topics"]["news"] == 2).then_some(())
    });

    reload(&server, &options().set("security.keys", json!([producer()])));
    kept.publish("q", &json!(1));
    kept.publish("q2", &json!(1));
    let polled_over_http = polling_over_http.join().unwrap();
    kept.publish("q3", &json!(1));
    kept.call(command::PUBLISH_TOPIC, r#"{"topic":"news","payload":"secret"}"#)
        .ok();

    let ended = tokio::time::timeout(WITHIN, stream.message())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        (ended.code(), reason(&ended).as_str()),
        (Code::Unauthenticated, "UNAUTHENTICATED")
    );
    let polled = tokio::time::timeout(WITHIN, polling)
        .await
        .unwrap()
        .unwrap()
        .unwrap_err();
    assert_eq!(polled.code(), Code::Unauthenticated);
    assert_eq!(polled_over_http.status, 401);
    let told = removed.receive().unwrap();
    assert_eq!(
        told.error(),
        "unauthorized: the key of this connection is no longer valid"
    );
    assert!(removed.ends());
    events.set_read_timeout(Some(WITHIN)).unwrap();
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut events, &mut rest).unwrap();
    assert!(!String::from_utf8_lossy(&rest).contains("secret"));
    let again = queues
        .list_queues(with_key(ListQueuesRequest::default(), CONSUMER))
        .await
        .unwrap_err();
    assert_eq!(again.code(), Code::Unauthenticated);
}

#[test]
fn a_key_with_another_role_has_to_be_shown_again() {
    let server = Server::start(&options());
    let mut client = binary(&server, CONSUMER);
    let mut now = consumer();
    now["role"] = json!(["consumer", "producer"]);
    reload(&server, &options().set("security.keys", json!([now])));
    assert!(client.receive().unwrap().error().contains("no longer valid"));
    binary(&server, CONSUMER).publish("q", &json!(1));
}

#[test]
fn locking_open_doors_closes_what_went_through_them() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    client.publish("q", &json!(1));
    reload(&server, &ServerOptions::memory().set("security.api_key", ADMIN));
    assert!(client.receive().unwrap().error().contains("no longer valid"));
    assert_eq!((status(&server, ""), status(&server, ADMIN)), (401, 200));
}

#[test]
fn limits_and_the_level_of_the_log_take_effect_at_once() {
    let server = Server::start(&options());
    assert!(!server.log().contains("DEBUG"));
    let changed = options()
        .set("log.level", "debug")
        .set("server.auth_attempts_max", 1)
        .set("server.max_frame_bytes_before_auth", 64)
        .set("security.auth_failures_per_minute", 0);
    reload(&server, &changed);
    let mut client = BinaryClient::connect(server.messaging());
    client.call(command::AUTH, r#"{"api_key":"x"}"#).error();
    assert!(client.ends());
    let mut client = BinaryClient::connect(server.messaging());
    assert!(
        client
            .try_call(command::AUTH, &json!({"api_key": "x".repeat(64)}).to_string())
            .is_err()
    );
    // Who sends anything but AUTH is worth a line of this level.
    BinaryClient::connect(server.messaging())
        .call(command::PING, "")
        .error();
    eventually(WITHIN, "a line of the new level", || {
        server.log().contains("DEBUG").then_some(())
    });
}

#[test]
fn what_needs_a_restart_is_named_each_time_and_the_rest_is_applied() {
    let server = Server::start(&options());
    let changed = options()
        .set("queue.max_retry", 7)
        .set("server.shutdown_grace", "1s")
        .set("security.api_key", "another key");
    for times in 1..=2 {
        reload(&server, &changed);
        let log = server.log();
        for key in ["queue.max_retry", "server.shutdown_grace"] {
            let named = |line: &&str| line.contains("takes effect with a restart") && line.contains(key);
            assert_eq!(log.lines().filter(named).count(), times, "{key}: {log}");
        }
    }
    assert_eq!(status(&server, "another key"), 200);
    assert!(
        server.log().contains("applied=\"security.api_key\""),
        "{}",
        server.log()
    );
}

#[test]
fn a_broken_file_changes_nothing() {
    let server = Server::start(&options());
    let before = lines(&server);
    let wrong_hash = options().set("security.keys", json!([{"id": "a", "hash": "x", "role": "admin"}]));
    for (number, text) in ["{", r#"{"security":{"api_kye":"x"}}"#, &wrong_hash.to_json()]
        .into_iter()
        .enumerate()
    {
        server.reload_text(text);
        eventually(WITHIN, "it is refused", || {
            (lines(&server) > before + number).then_some(())
        });
    }
    assert_eq!([status(&server, ADMIN), status(&server, PRODUCER)], [200, 200]);
    let log = server.log();
    assert!(
        log.contains("unknown key security.api_kye") && log.contains("security.keys, entry 1"),
        "{log}"
    );
}

/// The certificate that a server shows.
fn shown(server: &Server, authority: &Authority) -> Option<CertificateDer<'static>> {
    let stream = connect(server.messaging(), &authority.client(None, &[])).ok()?;
    Some(stream.conn.peer_certificates()?.first()?.clone().into_owned())
}

fn path(server: &Server, key: &str) -> String {
    server.options().get(key).and_then(Value::as_str).unwrap().to_owned()
}

/// Pitfall A6: certificates only changed with a restart.
#[test]
fn a_new_certificate_is_shown_without_a_signal_and_open_connections_stay() {
    let authority = Authority::new();
    let server = start_with_tls(&authority, ServerOptions::memory());
    let old = shown(&server, &authority).unwrap();
    let mut client = BinaryClient::over_tls(connect(server.messaging(), &authority.client(None, &[])).unwrap());
    let (cert, key) = authority.pair();
    // Whoever looks now sees half of it.
    std::fs::write(path(&server, "server.tls.cert_file"), cert).unwrap();
    eventually(WITHIN, "the half is refused", || {
        server
            .log()
            .contains("the new files of TLS cannot be used")
            .then_some(())
    });
    assert_eq!(shown(&server, &authority), Some(old.clone()));
    std::fs::write(path(&server, "server.tls.key_file"), key).unwrap();
    eventually(WITHIN, "another certificate", || {
        shown(&server, &authority).filter(|now| *now != old)
    });
    client.publish("q", &json!(1));
    assert_eq!(
        server.log().matches("the new files of TLS cannot be used").count(),
        1,
        "said once"
    );
}

#[test]
fn a_signal_takes_other_files_at_once_and_refuses_those_that_are_of_no_use() {
    let authority = Authority::new();
    let server = start_with_tls(&authority, ServerOptions::memory());
    let old = shown(&server, &authority).unwrap();
    let other = authority.issue(server.directory().path(), "other");
    let options = authority.options(server.options().clone(), &other);
    reload(&server, &options.clone().set("server.tls.key_file", "/nowhere/key.pem"));
    assert_eq!(shown(&server, &authority), Some(old.clone()));
    assert!(server.log().contains("/nowhere/key.pem"));
    reload(&server, &options);
    let new = shown(&server, &authority).unwrap();
    assert_ne!(new, old);
    let required = options
        .set(
            "server.tls.ca_file",
            authority.write(server.directory().path()).to_str().unwrap(),
        )
        .set("server.tls.client_auth", "required");
    reload(&server, &required);
    let stream = connect(server.messaging(), &authority.client(None, &[]));
    assert!(!stream.is_ok_and(|stream| BinaryClient::over_tls(stream).try_call(command::PING, "").is_ok()));
}

#[tokio::test]
async fn a_publish_is_finished_with_the_key_that_it_began_with() {
    let server = Server::start(&options());
    let mut queues = QueueServiceClient::new(channel(server.messaging()).await.unwrap());
    let publish = |payload: &str| {
        let request = boltq_proto::queue::v1::PublishRequest {
            queue: "q".to_owned(),
            message: Some(message(payload.to_owned())),
        };
        with_key(request, PRODUCER)
    };
    queues.publish(publish("before")).await.unwrap();
    reload(&server, &options().set("security.keys", json!([consumer()])));
    let refused = queues.publish(publish("after")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
}
