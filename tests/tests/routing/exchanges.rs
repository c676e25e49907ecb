//! Exchanges on one node.

use boltq_proto::exchange::v1::exchange_service_client::ExchangeServiceClient;
use boltq_proto::exchange::v1::{
    BindRequest, Binding, DeclareRequest, DeleteRequest, ExchangeType, ListBindingsRequest, ListRequest,
    PublishRequest, UnbindRequest,
};
use boltq_tests::harness::binary::{BinaryClient, Taken, command, status};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, duration, message, reason};
use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::{Value, json};
use tonic::Code;

const PUBLISH_ID: &str = "boltq-publish-id";

fn connected() -> (Server, BinaryClient) {
    let server = Server::start(&ServerOptions::memory());
    let client = BinaryClient::connect(server.messaging());
    (server, client)
}

/// Calls that the tests of exchanges make.
pub(crate) trait ExchangeCalls {
    fn ask(&mut self, code: u8, body: Value) -> Value;
    fn refused(&mut self, code: u8, body: Value) -> String;
    fn declare(&mut self, name: &str, kind: &str);
    fn bind(&mut self, exchange: &str, queue: &str, key: &str);
    fn route(&mut self, exchange: &str, key: &str, payload: Value) -> Value;
    fn take(&mut self, queue: &str) -> Taken;
}

impl ExchangeCalls for BinaryClient {
    #[track_caller]
    fn ask(&mut self, code: u8, body: Value) -> Value {
        self.call(code, &body.to_string()).ok()
    }

    #[track_caller]
    fn refused(&mut self, code: u8, body: Value) -> String {
        self.call(code, &body.to_string()).error()
    }

    #[track_caller]
    fn declare(&mut self, name: &str, kind: &str) {
        let body = json!({"name": name, "type": kind, "durable": true});
        assert_eq!(self.ask(command::EXCHANGE_DECLARE, body), json!({"status": "ok"}));
    }

    #[track_caller]
    fn bind(&mut self, exchange: &str, queue: &str, key: &str) {
        let body = json!({"exchange": exchange, "queue": queue, "binding_key": key});
        assert_eq!(self.ask(command::BIND_QUEUE, body), json!({"status": "ok"}));
    }

    #[track_caller]
    fn route(&mut self, exchange: &str, key: &str, payload: Value) -> Value {
        let body = json!({"exchange": exchange, "routing_key": key, "payload": payload});
        self.ask(command::PUBLISH_EXCHANGE, body)
    }

    #[track_caller]
    fn take(&mut self, queue: &str) -> Taken {
        self.consume(queue).unwrap_or_else(|| panic!("nothing in {queue}"))
    }
}

#[test]
fn copies_have_ids_of_their_own_and_that_of_the_reply_in_a_header() {
    let (_server, mut client) = connected();
    client.declare("orders", "fanout");
    client.bind("orders", "one", "");
    client.bind("orders", "two", "");
    let body = json!({"exchange": "orders", "routing_key": "eu.new", "payload": {"n": 1}, "headers": {"k": "v"}});
    let reply = client.ask(command::PUBLISH_EXCHANGE, body);
    let id = reply["id"].as_str().unwrap().to_owned();
    assert_eq!(reply, json!({"id": id, "topic": "", "routed": 2}));
    let copies = [client.take("one"), client.take("two")];
    assert!(copies[0].id != copies[1].id && copies.iter().all(|copy| copy.id != id));
    for copy in &copies {
        assert_eq!(copy.payload(), &json!({"n": 1}));
        assert_eq!(copy.body["headers"], json!({"k": "v", PUBLISH_ID: id}));
        // Each is acknowledged by itself.
        client.ack(&copy.id).ok();
    }
    assert_eq!(client.ack(&id).error(), format!("message {id} not found in pending"));
}

#[test]
fn a_topic_exchange_puts_one_copy_into_a_queue_that_it_chooses_twice() {
    let (_server, mut client) = connected();
    client.declare("t", "topic");
    for key in ["a.*.c", "a.#"] {
        client.bind("t", "q", key);
        // The same again must not deliver twice.
        client.bind("t", "q", key);
    }
    assert_eq!(client.route("t", "a.b.c", json!(1))["routed"], 1);
    client.take("q");
    assert!(client.consume("q").is_none());
}

#[test]
fn what_matches_nothing_is_a_success_that_tells_so() {
    let (server, mut client) = connected();
    client.declare("d", "");
    client.bind("d", "q", "k");
    assert_eq!(client.route("d", "other", json!(1))["routed"], 0);
    let metrics = http::get(server.admin(), "/metrics").unwrap();
    assert!(
        metrics.text().contains("\nboltq_exchange_unroutable_total 1\n"),
        "{}",
        metrics.text()
    );
}

#[test]
fn the_default_exchange_is_the_way_to_a_queue() {
    let (_server, mut client) = connected();
    let reply = client.route("", "jobs", json!(1));
    assert_eq!((&reply["topic"], &reply["routed"]), (&json!("jobs"), &json!(1)));
    client.take("jobs");
    for (code, body) in [
        (command::EXCHANGE_DECLARE, json!({"name": ""})),
        (command::EXCHANGE_DELETE, json!({"name": ""})),
    ] {
        assert_eq!(client.refused(code, body), "name is required");
    }
    let bind = json!({"exchange": "", "queue": "q"});
    assert_eq!(
        client.refused(command::BIND_QUEUE, bind),
        "exchange and queue are required"
    );
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_the_protocol() {
    let (_server, mut client) = connected();
    client.declare("orders", "fanout");
    client.declare("orders", "fanout");
    let body = json!({"name": "orders", "type": "direct"});
    assert_eq!(
        client.refused(command::EXCHANGE_DECLARE, body),
        r#"exchange "orders" already exists with type fanout"#
    );
    let body = json!({"name": "o", "type": "x"});
    assert_eq!(
        client.refused(command::EXCHANGE_DECLARE, body),
        r#"unknown exchange type "x""#
    );
    let missing = json!({"exchange": "x", "queue": "q"});
    for (code, body) in [
        (command::EXCHANGE_DELETE, json!({"name": "x"})),
        (command::BIND_QUEUE, missing.clone()),
        (command::UNBIND_QUEUE, missing),
        (command::PUBLISH_EXCHANGE, json!({"exchange": "x", "payload": 1})),
    ] {
        assert_eq!(client.refused(code, body), r#"exchange "x" not found"#);
    }
    // A binding that is not there is no error.
    client.ask(command::UNBIND_QUEUE, json!({"exchange": "orders", "queue": "never"}));
    let long = json!({"exchange": "orders", "routing_key": "k".repeat(256), "payload": 1});
    let refused = client.refused(command::PUBLISH_EXCHANGE, long);
    assert_eq!(refused, "routing_key has 256 bytes; at most 255 are allowed");
}

#[test]
fn only_successes_are_numbered_in_confirm_mode() {
    let (_server, mut client) = connected();
    client.declare("f", "fanout");
    client.call(command::CONFIRM_SELECT, "").ok();
    let numbered = |reply: Value| (reply["seq_no"].as_u64(), reply["ack"].as_bool());
    assert_eq!(numbered(client.route("f", "", json!(1))), (Some(1), Some(true)));
    client.refused(command::PUBLISH_EXCHANGE, json!({"exchange": "x"}));
    let published = client.call(command::PUBLISH, r#"{"topic":"q","payload":1}"#).ok();
    assert_eq!(published["seq_no"], 2);
    assert_eq!(numbered(client.route("f", "", json!(1))), (Some(3), Some(true)));
}

#[test]
fn requests_that_are_sent_together_are_answered_in_their_order() {
    let (_server, mut client) = connected();
    client.declare("d", "direct");
    client.bind("d", "q", "k");
    for n in 0..200 {
        let exchange = if n % 10 == 0 { "x" } else { "d" };
        let body = json!({"exchange": exchange, "routing_key": "k", "payload": n});
        client
            .send(command::PUBLISH_EXCHANGE, body.to_string().as_bytes())
            .unwrap();
        client.send(command::PING, b"").unwrap();
    }
    for n in 0..200 {
        let reply = client.receive().unwrap();
        assert_eq!(reply.status == status::OK, n % 10 != 0, "{n}: {}", reply.text());
        assert_eq!(client.receive().unwrap().ok(), json!({"status": "pong"}));
    }
    let wanted: Vec<_> = (0..200).filter(|n| n % 10 != 0).collect();
    for n in wanted {
        assert_eq!(client.take("q").payload(), &json!(n));
    }
}

#[test]
fn headers_decide_where_the_headers_exchange_sends() {
    let (_server, mut client) = connected();
    client.declare("h", "headers");
    for (queue, all) in [("all", true), ("any", false)] {
        let headers = json!({"region": "eu", "kind": ""});
        let body = json!({"exchange": "h", "queue": queue, "headers": headers, "match_all": all});
        client.ask(command::BIND_QUEUE, body);
    }
    let mut routed = |headers: Value| {
        let body = json!({"exchange": "h", "payload": 1, "headers": headers});
        client.ask(command::PUBLISH_EXCHANGE, body)["routed"].as_u64().unwrap()
    };
    assert_eq!(routed(json!({"region": "eu", "kind": "", "more": "x"})), 2);
    assert_eq!(routed(json!({"region": "eu"})), 1);
    assert_eq!(
        routed(json!({"region": "us"})),
        0,
        "an absent header is not an empty one"
    );
}

/// Weakness A3.
#[test]
fn exchanges_bindings_and_copies_survive_a_kill_and_a_restart() {
    let mut server = Server::start(&ServerOptions::disk());
    let mut client = BinaryClient::connect(server.messaging());
    client.declare("t", "topic");
    client.bind("t", "q", "a.#");
    client.bind("t", "p", "a.*");
    client.bind("t", "gone", "a.*");
    client.ask(
        command::UNBIND_QUEUE,
        json!({"exchange": "t", "queue": "gone", "binding_key": "a.*"}),
    );
    client.route("t", "a.b", json!("before"));
    let taken = client.take("p");
    client.ack(&taken.id).ok();
    server.kill();
    server.restart();
    let mut client = BinaryClient::connect(server.messaging());
    assert_eq!(client.route("t", "a.b", json!("after"))["routed"], 2);
    assert_eq!(client.take("q").payload(), "before");
    assert_eq!(client.take("q").payload(), "after");
    assert_eq!(client.take("p").payload(), "after", "what was acknowledged came back");
    // In good order, so that there is a checkpoint.
    server.terminate();
    server.restart();
    let mut client = BinaryClient::connect(server.messaging());
    assert_eq!(client.route("t", "a.b", json!("again"))["routed"], 2);
}

#[test]
fn a_copy_that_fails_too_often_is_a_dead_letter_of_its_queue() {
    let options = ServerOptions::memory()
        .set("queue.max_retry", 1)
        .set("queue.retry_backoff", 0);
    let server = Server::start(&options);
    let mut client = BinaryClient::connect(server.messaging());
    client.declare("f", "fanout");
    client.bind("f", "q", "");
    let id = client.route("f", "", json!(1))["id"].clone();
    for _ in 0..2 {
        let taken = client.take("q");
        client.nack(&taken.id).ok();
    }
    assert_eq!(client.take("q_dead_letter").body["headers"][PUBLISH_ID], id);
}

#[test]
fn the_admin_port_does_the_same() {
    let server = Server::start(&ServerOptions::memory());
    let post = |path: &str, body: &str| http::request(server.admin(), "POST", path, &[], body.as_bytes()).unwrap();
    let ok = |path: &str, body: Value| {
        let response = post(path, &body.to_string());
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.json()
    };
    assert_eq!(ok("/exchange/declare", json!({"name": "e"})), json!({"status": "ok"}));
    ok(
        "/exchange/bind",
        json!({"exchange": "e", "queue": "q", "binding_key": "k"}),
    );
    let published = ok(
        "/exchange/publish",
        json!({"exchange": "e", "routing_key": "k", "payload": [1]}),
    );
    assert_eq!(
        (&published["status"], &published["routed"]),
        (&json!("published"), &json!(1))
    );
    assert_eq!(published["id"].as_str().map(str::len), Some(32));
    let mut client = BinaryClient::connect(server.messaging());
    assert_eq!(client.take("q").payload(), &json!([1]));
    ok(
        "/exchange/unbind",
        json!({"exchange": "e", "queue": "q", "binding_key": "k"}),
    );
    assert_eq!(
        ok("/exchange/publish", json!({"exchange": "e", "routing_key": "k"}))["routed"],
        0
    );
    ok("/exchange/delete", json!({"name": "e"}));
    for (path, body, status, text) in [
        ("/exchange/declare", "x", 400, "invalid json"),
        ("/exchange/declare", "{}", 400, "name is required"),
        (
            "/exchange/declare",
            r#"{"name":"e","type":"x"}"#,
            500,
            r#"unknown exchange type "x""#,
        ),
        ("/exchange/delete", "{}", 400, "name is required"),
        ("/exchange/delete", r#"{"name":"e"}"#, 500, r#"exchange "e" not found"#),
        (
            "/exchange/bind",
            r#"{"queue":"q"}"#,
            400,
            "exchange and queue are required",
        ),
        (
            "/exchange/unbind",
            r#"{"exchange":"e"}"#,
            400,
            "exchange and queue are required",
        ),
        (
            "/exchange/publish",
            r#"{"exchange":"e"}"#,
            500,
            r#"exchange "e" not found"#,
        ),
    ] {
        let response = post(path, body);
        assert_eq!(
            (response.status, response.json()),
            (status, json!({"error": text})),
            "{path} {body}"
        );
    }
    assert_eq!(http::get(server.admin(), "/exchange/declare").unwrap().status, 405);
}

#[tokio::test]
async fn grpc_does_the_same_and_lists() {
    let server = Server::start(&ServerOptions::memory());
    let mut exchanges = ExchangeServiceClient::new(channel(server.messaging()).await.unwrap());
    let mut queues = connect(server.messaging()).await;
    let declare = |name: &str, kind: ExchangeType, alternate: &str| DeclareRequest {
        name: name.to_owned(),
        r#type: kind.into(),
        durable: true,
        alternate_exchange: alternate.to_owned(),
    };
    let bind = |exchange: &str, queue: &str, key: &str| BindRequest {
        exchange: exchange.to_owned(),
        binding: Some(Binding {
            queue: queue.to_owned(),
            binding_key: key.to_owned(),
            ..Binding::default()
        }),
    };
    let publish = |exchange: &str, key: &str| PublishRequest {
        exchange: exchange.to_owned(),
        routing_key: key.to_owned(),
        message: Some(message("m")),
    };
    exchanges
        .declare(declare("rest", ExchangeType::Fanout, ""))
        .await
        .unwrap();
    let declared = exchanges
        .declare(declare("e", ExchangeType::Unspecified, "rest"))
        .await
        .unwrap();
    let declared = declared.into_inner().exchange.unwrap();
    assert_eq!(
        (declared.r#type(), declared.alternate_exchange.as_str()),
        (ExchangeType::Direct, "rest")
    );
    let other = exchanges
        .declare(declare("e", ExchangeType::Topic, ""))
        .await
        .unwrap_err();
    assert_eq!(
        (other.code(), reason(&other).as_str()),
        (Code::FailedPrecondition, "EXCHANGE_EXISTS")
    );

    assert!(exchanges.bind(bind("e", "q", "k")).await.unwrap().into_inner().created);
    assert!(!exchanges.bind(bind("e", "q", "k")).await.unwrap().into_inner().created);
    exchanges.bind(bind("rest", "lost", "")).await.unwrap();
    for (key, queue) in [("k", "q"), ("other", "lost")] {
        let published = exchanges.publish(publish("e", key)).await.unwrap().into_inner();
        assert_eq!(published.routed, 1);
        let taken = queues.take_one(queue).await;
        let id: String = published.message_id.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(taken.headers[PUBLISH_ID], id);
    }
    let mut delayed = publish("e", "k");
    delayed.message.as_mut().unwrap().delay = duration(std::time::Duration::from_secs(1));
    let refused = exchanges.publish(delayed).await.unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::InvalidArgument, "INVALID_ARGUMENT")
    );

    let mut names = Vec::new();
    let mut page_token = String::new();
    loop {
        let page_size = 1;
        let page = exchanges
            .list(ListRequest {
                page_size,
                page_token,
                linearizable: true,
            })
            .await
            .unwrap()
            .into_inner();
        names.extend(
            page.exchanges
                .into_iter()
                .map(|exchange| (exchange.name, exchange.bindings)),
        );
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names, [("e".to_owned(), 1), ("rest".to_owned(), 1)]);
    let bindings = ListBindingsRequest {
        exchange: "e".to_owned(),
        ..ListBindingsRequest::default()
    };
    let listed = exchanges
        .list_bindings(bindings.clone())
        .await
        .unwrap()
        .into_inner()
        .bindings;
    assert_eq!(
        (listed.len(), listed[0].queue.as_str(), listed[0].binding_key.as_str()),
        (1, "q", "k")
    );
    let unbind = UnbindRequest {
        exchange: "e".to_owned(),
        queue: "q".to_owned(),
        binding_key: "k".to_owned(),
    };
    assert_eq!(exchanges.unbind(unbind).await.unwrap().into_inner().removed, 1);
    exchanges.delete(DeleteRequest { name: "e".to_owned() }).await.unwrap();
    let missing = exchanges.list_bindings(bindings).await.unwrap_err();
    assert_eq!(
        (missing.code(), reason(&missing).as_str()),
        (Code::NotFound, "EXCHANGE_NOT_FOUND")
    );
}
