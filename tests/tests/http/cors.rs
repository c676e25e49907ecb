//! Which pages may read answers: `server.cors.allowed_origins`.

use boltq_tests::harness::{Server, ServerOptions, http};
use serde_json::{Value, json};

use super::client::done;

const HERE: &str = "https://console.example:8443";

fn server(origins: Value) -> Server {
    let options = ServerOptions::memory().set("security.api_key", "s3cret");
    Server::start(&options.set("server.cors.allowed_origins", origins))
}

fn ask(server: &Server, method: &str, path: &str, origin: Option<&str>) -> http::Response {
    let headers: Vec<_> = origin.map(|origin| ("origin", origin)).into_iter().collect();
    http::request(server.admin(), method, path, &headers, b"").unwrap()
}

/// The three headers, of which there are all or none.
#[track_caller]
fn told(response: &http::Response) -> Option<String> {
    let header = |name: &str| {
        response
            .header(&format!("access-control-allow-{name}"))
            .map(str::to_owned)
    };
    let origin = header("origin");
    let (methods, headers) = match origin {
        Some(_) => (Some("GET, POST, DELETE, OPTIONS"), Some("Content-Type, X-API-Key")),
        None => (None, None),
    };
    assert_eq!(
        (header("methods").as_deref(), header("headers").as_deref()),
        (methods, headers)
    );
    origin
}

/// Preflight, done, refused, not there, wrong method.
const REQUESTS: [(&str, &str, u16); 6] = [
    ("OPTIONS", "/publish", 204),
    ("OPTIONS", "/nowhere", 204),
    ("GET", "/health", 200),
    ("GET", "/stats", 401),
    ("GET", "/nowhere?api_key=s3cret", 404),
    ("GET", "/publish?api_key=s3cret", 405),
];

#[test]
fn any_page_may_read_unless_it_is_said_otherwise() {
    let by_default = Server::start(&ServerOptions::memory().set("security.api_key", "s3cret"));
    for server in [by_default, server(json!(["*"]))] {
        for (method, path, status) in REQUESTS {
            for origin in [None, Some(HERE), Some("null")] {
                let response = ask(&server, method, path, origin);
                assert_eq!(
                    (response.status, told(&response).as_deref()),
                    (status, Some("*")),
                    "{method} {path}"
                );
                assert_eq!(response.header("vary"), None);
            }
        }
    }
}

#[test]
fn of_a_list_the_page_that_asks_is_named_and_no_other() {
    let server = server(json!(["https://other.example", HERE]));
    for (method, path, status) in REQUESTS {
        for (origin, named) in [
            (Some(HERE), Some(HERE)),
            (Some("https://other.example"), Some("https://other.example")),
            (Some("https://console.example"), None),
            (Some("null"), None),
            (None, None),
        ] {
            let response = ask(&server, method, path, origin);
            assert_eq!(
                (response.status, told(&response).as_deref()),
                (status, named),
                "{method} {path} {origin:?}"
            );
            assert_eq!(response.header("vary"), Some("Origin"), "{method} {path}");
        }
    }
}

#[test]
fn an_empty_list_tells_nobody_anything() {
    let server = server(json!([]));
    for (method, path, status) in REQUESTS {
        let response = ask(&server, method, path, Some(HERE));
        assert_eq!(
            (response.status, told(&response), response.header("vary")),
            (status, None, None),
            "{method} {path}"
        );
    }
    done(&http::get(server.admin(), "/stats?api_key=s3cret").unwrap());
}
