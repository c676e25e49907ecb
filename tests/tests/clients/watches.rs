//! Streams that begin anew: watches of the cache over a restart of the server.

use std::time::Duration;

use boltq::{Client, WatchEvent};
use boltq_tests::harness::{Server, ServerOptions, within};

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
    server.restart();
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
