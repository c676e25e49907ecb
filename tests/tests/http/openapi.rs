//! `/openapi.json` against the running server: every operation that it describes is asked, and what is answered has to be
//! what it says.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::{Value, json};

use super::client::{PATIENCE, done, get, id, publish, server, take};
use super::schema::{check, resolve};

/// Asks, and checks request and answer against the document.
pub(crate) struct Described {
    document: Value,
    admin: SocketAddr,
    /// Operations that were answered as they are meant to be.
    done: BTreeSet<(String, String)>,
}

impl Described {
    pub(crate) fn new(admin: SocketAddr) -> Self {
        Self {
            document: done(&get(admin, "/openapi.json")),
            admin,
            done: BTreeSet::new(),
        }
    }

    fn operation(&self, method: &str, path: &str) -> &Value {
        let operation = &self.document["paths"][path][method.to_ascii_lowercase()];
        assert!(operation.is_object(), "{method} {path} is not described");
        operation
    }

    /// Asks with these parameters or this body, and returns the body of an answer with this status.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, target: &str, body: Option<&Value>, status: u16) -> Value {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        self.check_request(method, path, query, body, status);
        let text = body.map(Value::to_string).unwrap_or_default();
        let response = http::request(self.admin, method, target, &[], text.as_bytes()).unwrap();
        assert_eq!(response.status, status, "{method} {target}: {}", response.text());
        self.check_answer(method, path, &response)
    }

    fn check_request(&self, method: &str, path: &str, query: &str, body: Option<&Value>, status: u16) {
        let operation = self.operation(method, path);
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        for name in query
            .split('&')
            .filter_map(|pair| pair.split('=').next())
            .filter(|name| !name.is_empty())
        {
            assert!(
                parameters.iter().any(|known| known["name"] == name),
                "{name} of {path} is not described"
            );
        }
        match body {
            // Errors are asked for on purpose.
            Some(body) if status < 300 => {
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                check(&self.document, schema, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
            }
            _ => {}
        }
    }

    fn check_answer(&mut self, method: &str, path: &str, response: &http::Response) -> Value {
        let mut described = &self.operation(method, path)["responses"][response.status.to_string()];
        if let Some(reference) = described.get("$ref") {
            described = resolve(&self.document, reference);
        }
        assert!(
            described.is_object(),
            "{} of {method} {path} is not described",
            response.status
        );
        for (name, header) in described["headers"].as_object().into_iter().flatten() {
            let there = response.header(&name.to_ascii_lowercase()).is_some();
            assert!(
                there || header["required"] != true,
                "{method} {path}: {name} is missing"
            );
        }
        let Some(content) = described.get("content") else {
            assert!(response.body.is_empty(), "{method} {path}");
            self.succeeded(method, path, response.status);
            return Value::Null;
        };
        let kind = response.header("content-type").expect("a content type");
        let schema = &content[kind.split(';').next().unwrap()]["schema"];
        assert!(schema.is_object(), "{kind} of {method} {path} is not described");
        let body = match kind {
            "application/json" => response.json(),
            _ => response.text().into(),
        };
        check(&self.document, schema, &body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        self.succeeded(method, path, response.status);
        body
    }

    fn succeeded(&mut self, method: &str, path: &str, status: u16) {
        if status < 300 {
            self.done.insert((path.to_owned(), method.to_ascii_lowercase()));
        }
    }

    pub(crate) fn get(&mut self, target: &str) -> Value {
        self.ask("GET", target, None, 200)
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Value {
        self.ask("POST", path, Some(body), 200)
    }

    /// `/subscribe` does not end by itself, so its first event has to do.
    fn subscribe(&mut self, topic: &str) {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET /subscribe?topic={topic}&id=s HTTP/1.1\r\nhost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
        lines.find(String::is_empty).expect("the end of the head");
        self.post(
            "/publish/topic",
            &json!({"topic": topic, "payload": {"a": 1}, "headers": {"k": "v"}}),
        );
        let event = lines
            .find_map(|line| line.strip_prefix("data: ").map(str::to_owned))
            .expect("an event");
        let message = serde_json::from_str(&event).expect("JSON");
        let schema = &self.document["components"]["schemas"]["TopicMessage"];
        check(&self.document, schema, &message).unwrap();
        self.succeeded("GET", "/subscribe", 200);
    }

    fn all(&self) -> BTreeSet<(String, String)> {
        let paths = self.document["paths"].as_object().unwrap();
        let operations = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(move |method| (path.clone(), method.clone()))
        });
        operations.collect()
    }
}

/// What a cluster is needed for is asked in `forwarded`.
const OF_CLUSTERS: [&str; 3] = ["/cluster/join", "/cluster/leave", "/cluster/transfer"];

#[test]
fn every_operation_is_answered_as_the_document_says() {
    let server = server();
    let mut api = Described::new(server.admin());
    probes_and_figures(&mut api);
    messages(&mut api);
    queues_and_dead_letters(&mut api);
    routing(&mut api);
    cache(&mut api);
    for path in OF_CLUSTERS {
        api.ask(
            "POST",
            path,
            Some(&json!({"node_id": "n2", "addr": "a:1", "group": "queue"})),
            400,
        );
    }
    let left: Vec<_> = api.all().difference(&api.done).map(|(path, _)| path.clone()).collect();
    assert_eq!(left, OF_CLUSTERS, "operations that were not asked");
}

fn probes_and_figures(api: &mut Described) {
    for path in [
        "/health",
        "/livez",
        "/readyz",
        "/overview",
        "/stats",
        "/metrics",
        "/openapi.json",
        "/cluster/status",
    ] {
        api.get(path);
    }
    let json = http::request(api.admin, "GET", "/metrics", &[("accept", "application/json")], b"").unwrap();
    api.check_answer("GET", "/metrics", &json);
    api.ask("GET", "/stats?linearizable=perhaps", None, 400);
}

fn messages(api: &mut Described) {
    let full = json!({"topic": "q", "payload": {"a": 1}, "headers": {"k": "v"}, "delay": 1, "ttl": 3_600_000_000_000_u64,
        "priority": 4, "idempotency_key": "once"});
    api.post("/publish", &full);
    api.post("/publish", &json!({"topic": "q"}));
    for _ in 0..2 {
        let taken = api.get("/consume?topic=q&wait=30s");
        api.post("/ack", &json!({"id": id(&taken)}));
        api.ask("POST", "/ack", Some(&json!({"id": id(&taken)})), 404);
    }
    api.ask("GET", "/consume?topic=q", None, 204);
    api.ask("GET", "/consume?topic=q&payload=xml", None, 400);
    api.ask("POST", "/publish", Some(&json!({"payload": 1})), 400);
    api.ask(
        "POST",
        "/publish",
        Some(&json!({"topic": "q", "payload": "x".repeat(5 << 20)})),
        413,
    );
    api.ask("POST", "/nack", Some(&json!({"id": "none"})), 404);
}

fn queues_and_dead_letters(api: &mut Described) {
    for _ in 0..2 {
        publish(api.admin, &json!({"topic": "jobs", "payload": "p"}));
        let taken = api.get("/consume?topic=jobs&payload=base64");
        api.post("/nack", &json!({"id": id(&taken), "delay": 0, "requeue": false}));
    }
    api.get("/dead-letters?prefix=j&page_size=1&page_token=");
    api.post(
        "/dead-letters/redrive",
        &json!({"queue": "jobs", "headers": {}, "max_messages": 1, "max_per_second": 100}),
    );
    api.get("/queues?prefix=j&page_size=2&linearizable=true");
    let peeked = api.get("/queues/peek?queue=jobs&max_messages=5");
    assert_eq!(peeked["messages"].as_array().unwrap().len(), 1);
    api.post("/queues/purge", &json!({"queue": "jobs"}));
    api.post("/dead-letters/purge", &json!({"queue": "jobs"}));
    api.ask("GET", "/queues/peek?queue=none", None, 404);
    api.ask("POST", "/queues/purge", Some(&json!({"queue": "none"})), 500);
    api.ask("POST", "/dead-letters/purge", Some(&json!({"queue": "none"})), 500);
    api.ask("POST", "/dead-letters/redrive", Some(&json!({"queue": "none"})), 404);
    api.ask("GET", "/queues?page_size=-1", None, 400);
}

fn routing(api: &mut Described) {
    api.subscribe("news");
    api.get("/topics");
    api.post(
        "/exchange/declare",
        &json!({"name": "e", "type": "topic", "durable": true}),
    );
    api.post(
        "/exchange/bind",
        &json!({"exchange": "e", "queue": "bound", "binding_key": "a.#"}),
    );
    api.post(
        "/exchange/publish",
        &json!({"exchange": "e", "routing_key": "a.b", "payload": 1, "headers": {"k": "v"}}),
    );
    api.get("/consume?topic=bound");
    api.post(
        "/exchange/unbind",
        &json!({"exchange": "e", "queue": "bound", "binding_key": "a.#"}),
    );
    api.post("/exchange/delete", &json!({"name": "e"}));
    api.ask("POST", "/exchange/delete", Some(&json!({"name": "e"})), 500);
    api.ask("POST", "/exchange/publish", Some(&json!({"exchange": "e"})), 500);
    api.ask("GET", "/subscribe?topic=t", None, 400);
}

fn cache(api: &mut Described) {
    api.post("/cache/set", &json!({"key": "k", "value": {"a": 1}, "ttl": 60_000}));
    for target in [
        "/cache/get?key=k",
        "/cache/exists?key=k",
        "/cache/keys?pattern=k*",
        "/cache/entries?search=K",
        "/cache/stats",
    ] {
        api.get(target);
    }
    api.post("/cache/expire", &json!({"key": "k", "ttl": 0}));
    api.post("/cache/incr", &json!({"key": "n", "delta": 2}));
    api.post("/cache/del", &json!({"key": "k"}));
    api.ask("POST", "/cache/flush", None, 200);
    api.ask("GET", "/cache/get?key=k", None, 404);
    api.ask("GET", "/cache/get", None, 400);
}

#[test]
fn refusals_are_as_the_document_says() {
    let options = ServerOptions::memory()
        .set("security.api_key", "k")
        .set("cache.enabled", false);
    let server = Server::start(&options.set("queue.dedup_max_keys", 1));
    let mut api = Described::new(server.admin());
    for (path, method) in api.all() {
        let open = api.operation(&method, &path)["security"] == json!([]);
        if !open {
            api.ask(&method.to_ascii_uppercase(), &path, None, 401);
        }
    }
    let headers = [("x-api-key", "k")];
    let ask = |method: &str, path: &str, body: &str| {
        http::request(server.admin(), method, path, &headers, body.as_bytes()).unwrap()
    };
    for key in ["a", "b"] {
        let body = json!({"topic": "q", "idempotency_key": key}).to_string();
        api.check_answer("POST", "/publish", &ask("POST", "/publish", &body));
    }
    for (method, path) in [
        ("GET", "/cache/get"),
        ("POST", "/cache/set"),
        ("POST", "/cache/flush"),
        ("GET", "/cache/stats"),
    ] {
        api.check_answer(method, path, &ask(method, path, "{}"));
    }
}

/// The document can be had without a key: it tells no more than the documentation.
#[test]
fn the_document_is_open() {
    let server = Server::start(&ServerOptions::memory().set("security.api_key", "k"));
    let document = done(&get(server.admin(), "/openapi.json"));
    assert_eq!(document["openapi"], "3.1.0");
}

/// A message that came over the binary protocol is described too.
#[test]
fn messages_of_other_doors_are_as_the_document_says() {
    let server = server();
    let mut binary = BinaryClient::connect(server.messaging());
    binary.publish("q", &json!({"a": 1}));
    let mut api = Described::new(server.admin());
    api.get("/queues/peek?queue=q");
    assert!(take(server.admin(), "q").is_some());
}
