//! HTTP on the admin port.

use boltq_server::config::ApiKey;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::*;

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_str(&self.body).unwrap()
    }
}

async fn ask(server: &Server, method: &str, path: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(server.admin).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

async fn get(server: &Server, path: &str) -> Answer {
    ask(server, "GET", path, "").await
}

#[tokio::test]
async fn health_is_answered_whatever_the_method() {
    let server = Server::start().await;
    for path in ["/health", "/livez"] {
        for method in ["GET", "POST", "DELETE"] {
            let answer = ask(&server, method, path, "").await;
            assert_eq!((answer.status, answer.json()), (200, json!({"status": "ok"})));
        }
    }
    let ready = get(&server, "/readyz").await;
    assert_eq!(ready.status, 200);
    let body = ready.json();
    assert_eq!((&body["ready"], &body["clustered"]), (&json!(true), &json!(false)));
    assert!(
        body["uptime_seconds"].is_u64() && body.get("reason").is_none(),
        "{body}"
    );
}

#[tokio::test]
async fn browsers_may_ask_from_everywhere() {
    let server = Server::start_with(|config| config.security.api_key = ApiKey::new("s3cret")).await;
    for path in ["/stats", "/metrics", "/health"] {
        let preflight = ask(&server, "OPTIONS", path, "").await;
        assert_eq!((preflight.status, preflight.body.as_str()), (204, ""));
        for answer in [preflight, get(&server, path).await] {
            assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
            assert_eq!(
                answer.header("access-control-allow-methods"),
                Some("GET, POST, DELETE, OPTIONS")
            );
            assert_eq!(
                answer.header("access-control-allow-headers"),
                Some("Content-Type, X-API-Key")
            );
        }
    }
}

#[tokio::test]
async fn the_key_is_taken_from_the_header_or_else_from_the_query() {
    let server = Server::start_with(|config| config.security.api_key = ApiKey::new("s3 cret")).await;
    for (path, headers, status) in [
        ("/stats", "", 401),
        ("/stats?api_key=", "", 401),
        ("/stats?api_key=wrong", "", 401),
        ("/stats?api_key=s3%20cret", "", 200),
        ("/stats?a=b&api_key=s3+cret", "", 200),
        ("/stats", "X-API-Key: s3 cret\r\n", 200),
        ("/stats", "x-api-key: wrong\r\n", 401),
        ("/stats?api_key=s3+cret", "x-api-key: wrong\r\n", 401),
        ("/nothing", "", 401),
        ("/nothing", "x-api-key: s3 cret\r\n", 404),
        ("/health", "", 200),
        ("/livez", "", 200),
        ("/readyz", "", 200),
        ("/metrics", "", 200),
    ] {
        let answer = ask(&server, "GET", path, headers).await;
        assert_eq!(answer.status, status, "{path} {headers}");
        if status == 401 {
            assert_eq!(answer.json(), json!({"error": "unauthorized"}));
        }
    }
}

#[tokio::test]
async fn wrong_methods_and_paths_have_their_errors() {
    let server = Server::start().await;
    let wrong = ask(&server, "POST", "/stats", "content-length: 0\r\n").await;
    assert_eq!(
        (wrong.status, wrong.json()),
        (405, json!({"error": "method not allowed"}))
    );
    assert_eq!(wrong.header("allow"), Some("GET,HEAD"));
    let nothing = get(&server, "/nothing").await;
    assert_eq!((nothing.status, nothing.json()), (404, json!({"error": "not found"})));
}

#[tokio::test]
async fn statistics_are_those_of_the_binary_protocol() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.publish("jobs", &json!(1)).await;
    client.publish("jobs", &json!(2)).await;
    client.consume("jobs").await;
    let answer = get(&server, "/stats").await;
    assert_eq!((answer.status, answer.json()), (200, client.ask(STATS, "").await.1));
    assert_eq!(answer.json()["Queues"], json!({"jobs": 1}));
}

#[tokio::test]
async fn metrics_are_text_for_scrapers_and_an_object_for_who_asks_for_json() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for n in 0..3 {
        client.publish("jobs", &json!(n)).await;
    }
    let id = id_of(&client.consume("jobs").await.1);
    client.settle(ACK, &id).await;

    let text = get(&server, "/metrics").await;
    assert_eq!(
        (text.status, text.header("content-type")),
        (200, Some("text/plain; version=0.0.4"))
    );
    for line in [
        "# TYPE boltq_messages_published counter",
        "boltq_messages_published 3",
        "boltq_messages_acked 1",
        "boltq_messages_ready 2",
        "boltq_connections{port=\"messaging\"} 1",
        "boltq_frames_rejected_total 0",
    ] {
        assert!(text.body.lines().any(|found| found == line), "{line}\n{}", text.body);
    }
    let names: Vec<_> = text
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    assert!(names.is_sorted(), "{names:?}");

    let object = ask(&server, "POST", "/metrics", "accept: text/html, application/json\r\n")
        .await
        .json();
    assert_eq!(object.as_object().unwrap().len(), 13);
    assert!(object.as_object().unwrap().values().all(Value::is_u64), "{object}");
    assert_eq!(
        (&object["messages_published"], &object["messages_acked"]),
        (&json!(3), &json!(1))
    );
}
