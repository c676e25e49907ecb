//! Streams that begin anew: watches of the cache over a restart of the server.

use std::time::Duration;

use boltq::{Client, WatchEvent};
use boltq_tests::harness::{Server, ServerOptions, within};
use futures_util::{StreamExt, stream};

const SOON: Duration = Duration::from_secs(60);

async fn next(watch: &mut boltq::Watch) -> WatchEvent {
    let next = within(SOON, "the next event", watch.next()).await;
    next.expect("it goes on").expect("no failure")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_begins_anew_after_a_restart_and_says_so() {
    let mut server = Server::start(&ServerOptions::disk());
    let client = Client::builder().address(server.messaging().to_string());
    let client = client.connect().await.expect("a client");
    let kv = client.kv();
    let mut watch = kv.watch("a*", false).await.expect("a watch");
    assert!(matches!(next(&mut watch).await, WatchEvent::Ready { .. }));
    let version = kv.set("a1", "1").await.expect("set");
    kv.set("b1", "not watched").await.expect("set");
    kv.set("a2", "1").await.expect("set");
    for expected in ["a1", "a2"] {
        match next(&mut watch).await {
            WatchEvent::Put(entry) => assert_eq!(entry.key, expected),
            other => panic!("{other:?} is no value of {expected}"),
        }
    }
    server.kill();
    server.start_again();
    // While it is broken nothing is seen; what is there is told again, and what is not is gone.
    let WatchEvent::Restarted = next(&mut watch).await else {
        panic!("it began anew without a word")
    };
    let mut there = Vec::new();
    loop {
        match next(&mut watch).await {
            WatchEvent::Put(entry) => there.push((entry.key, entry.version)),
            WatchEvent::Ready { version: ready } => {
                assert!(ready >= version);
                break;
            }
            other => panic!("{other:?} before all was told"),
        }
    }
    let keys: Vec<&str> = there.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["a1", "a2"]);
    kv.delete("a1").await.expect("deleted");
    assert!(matches!(next(&mut watch).await, WatchEvent::Removed { key, .. } if key == "a1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_was_too_slow_begins_anew_and_says_so() {
    let server = Server::start(&ServerOptions::memory());
    let builder = || Client::builder().address(server.messaging().to_string());
    let narrow = builder().window_bytes(64 << 10).connect().await.expect("a client");
    let mut watch = narrow.kv().watch("*", false).await.expect("a watch");
    let client = builder().connect().await.expect("a client");
    // More than its window has room for, and the changes that the server lets it be behind.
    let counts = stream::iter(0..5_500_u32).map(|number| {
        let kv = client.kv();
        async move {
            let key = format!("{}{:02}", "k".repeat(900), number % 50);
            kv.increment(&key, 1).await.expect("counted")
        }
    });
    counts.buffer_unordered(64).collect::<Vec<_>>().await;
    let mut before = 0;
    while !matches!(next(&mut watch).await, WatchEvent::Restarted) {
        before += 1;
    }
    assert!(before < 5_500, "it was not too slow");
    let mut there = 0;
    while let WatchEvent::Put(entry) = next(&mut watch).await {
        assert_eq!(entry.value, "110", "what is there now");
        there += 1;
    }
    assert_eq!(there, 50);
}
