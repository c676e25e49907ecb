//! Patterns, and lists of any length.

use std::collections::BTreeSet;

use boltq_proto::kv::v1::KeysRequest;
use boltq_tests::harness::grpc::reason;
use boltq_tests::harness::{Server, ServerOptions};
use futures_util::{StreamExt, stream};
use serde_json::json;
use tonic::Code;

use super::client::{KvClient, connect, done, keys, look, put};

fn server() -> Server {
    Server::start(&ServerOptions::memory())
}

async fn put_all(client: &KvClient, keys: impl Iterator<Item = String>) {
    let puts = stream::iter(keys).map(|key| {
        let mut client = client.clone();
        async move { put(&mut client, &key, "v").await }
    });
    puts.buffer_unordered(64).collect::<Vec<_>>().await;
}

async fn page(client: &mut KvClient, pattern: &str, size: u32, token: &str) -> (Vec<String>, String) {
    let request = KeysRequest {
        pattern: pattern.to_owned(),
        page_size: size,
        page_token: token.to_owned(),
    };
    let page = client.keys(request).await.unwrap().into_inner();
    (page.keys, page.next_page_token)
}

#[tokio::test(flavor = "multi_thread")]
async fn stars_at_the_ends_stand_for_anything_and_the_rest_for_itself() {
    let server = server();
    let mut client = connect(server.messaging()).await;
    for key in ["user:1", "user:2", "superuser:1", "a*b", "axb", "a?b", "a[x]b"] {
        put(&mut client, key, "v").await;
    }
    for (pattern, wanted) in [
        (
            "",
            vec!["a*b", "a?b", "a[x]b", "axb", "superuser:1", "user:1", "user:2"],
        ),
        (
            "*",
            vec!["a*b", "a?b", "a[x]b", "axb", "superuser:1", "user:1", "user:2"],
        ),
        (
            "**",
            vec!["a*b", "a?b", "a[x]b", "axb", "superuser:1", "user:1", "user:2"],
        ),
        ("user:*", vec!["user:1", "user:2"]),
        ("*:1", vec!["superuser:1", "user:1"]),
        ("*user*", vec!["superuser:1", "user:1", "user:2"]),
        ("user:1", vec!["user:1"]),
        ("a*b", vec!["a*b"]),
        ("a?b", vec!["a?b"]),
        ("a[x]b", vec!["a[x]b"]),
        ("nobody*", vec![]),
    ] {
        assert_eq!(keys(server.admin(), pattern), wanted, "{pattern}");
        let over_grpc = page(&mut client, pattern, 0, "").await;
        assert_eq!(
            over_grpc,
            (wanted.iter().map(|key| (*key).to_owned()).collect(), String::new()),
            "{pattern}"
        );
        assert_eq!(
            look(server.admin(), &format!("entries?pattern={pattern}"))["total"],
            wanted.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_each_other_without_gaps() {
    let server = server();
    let mut client = connect(server.messaging()).await;
    put_all(&client, (0..25).map(|number| format!("k{number:02}"))).await;
    for size in [1, 7, 25, 26] {
        let (mut seen, mut token) = (Vec::new(), String::new());
        loop {
            let (keys, next) = page(&mut client, "k*", size, &token).await;
            assert!(keys.len() <= size as usize);
            seen.extend(keys);
            if next.is_empty() {
                break;
            }
            token = next;
        }
        let wanted: Vec<String> = (0..25).map(|number| format!("k{number:02}")).collect();
        assert_eq!(seen, wanted, "{size}");
    }
    let request = KeysRequest {
        page_size: 1_001,
        ..KeysRequest::default()
    };
    let refused = client.keys(request).await.unwrap_err();
    assert_eq!(
        (refused.code(), &*reason(&refused)),
        (Code::InvalidArgument, "INVALID_ARGUMENT")
    );
}

/// More than is looked at in one go, and more bytes than are written in one go.
#[tokio::test(flavor = "multi_thread")]
async fn lists_over_http_have_no_end_that_is_too_long() {
    let server = server();
    let mut client = connect(server.messaging()).await;
    let name = |number: u32| format!("{number:04}-{}", "x".repeat(200));
    put_all(&client, (0..2_500).map(name)).await;
    put(&mut client, "Needle", "v").await;
    let listed: BTreeSet<String> = keys(server.admin(), "*").into_iter().collect();
    assert_eq!(listed, (0..2_500).map(name).chain(["Needle".to_owned()]).collect());
    assert_eq!(keys(server.admin(), "Need*"), ["Needle"]);
    assert_eq!(keys(server.admin(), "*xx").len(), 2_500);
    let (page, next) = page(&mut client, "Need*", 1_000, "").await;
    assert_eq!((page, next), (vec!["Needle".to_owned()], String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_entries_are_shown_and_all_are_counted() {
    let server = server();
    let mut client = connect(server.messaging()).await;
    let admin = server.admin();
    put_all(&client, (0..130).map(|number| format!("Job:{number}"))).await;
    put_all(&client, (0..100).map(|number| format!("other:{number}"))).await;
    for (query, total) in [
        ("", 230),
        ("?pattern=Job:*", 130),
        ("?search=oB:", 130),
        ("?pattern=other:*&search=R:9", 11),
        ("?pattern=other:*&search=job", 0),
        ("?search=other", 100),
    ] {
        let answer = look(admin, &format!("entries{query}"));
        assert_eq!(answer["total"], total, "{query}");
        assert_eq!(answer["entries"].as_array().unwrap().len(), total.min(100), "{query}");
    }
    // Large values, one after the other.
    for number in 0..3 {
        let value = "ü".repeat(500_000);
        done(admin, "set", &json!({"key": format!("large:{number}"), "value": value}));
    }
    let large = look(admin, "entries?pattern=large:*");
    for entry in large["entries"].as_array().unwrap() {
        assert_eq!(
            (entry["value"].as_str().unwrap().len(), &entry["size"]),
            (1_000_000, &json!(1_000_000))
        );
    }
    put(&mut client, "large:1", "small").await;
    assert_eq!(look(admin, "get?key=large:1")["value"], "small");
}
