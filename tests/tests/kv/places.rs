//! `cache.max_keys`: whose place is taken.

use boltq_tests::harness::{Server, ServerOptions};
use serde_json::json;

use super::client::{done, get, keys, look};

fn server(keys_max: u64) -> Server {
    Server::start(&ServerOptions::memory().set("cache.max_keys", keys_max))
}

fn set(server: &Server, key: &str) {
    done(server.admin(), "set", &json!({"key": key, "value": 1}));
}

#[test]
fn the_key_that_was_used_longest_ago_makes_room() {
    let server = server(3);
    let admin = server.admin();
    for key in ["a", "b", "c"] {
        set(&server, key);
    }
    // A read is a use, and so is a set; to look whether it exists is none.
    look(admin, "get?key=a");
    look(admin, "exists?key=b");
    set(&server, "d");
    assert_eq!(keys(admin, "*"), ["a", "c", "d"]);
    set(&server, "c");
    set(&server, "e");
    assert_eq!(keys(admin, "*"), ["c", "d", "e"]);
    assert_eq!(look(admin, "stats")["stats"]["evicted"], 2);
    assert_eq!(look(admin, "stats")["stats"]["expired"], 0);
}

#[test]
fn never_the_key_that_was_just_set_or_counted() {
    let server = server(1);
    let admin = server.admin();
    for number in 0..20 {
        let key = format!("k{number}");
        set(&server, &key);
        assert_eq!(keys(admin, "*"), [key]);
        let counted = format!("n{number}");
        done(admin, "incr", &json!({"key": counted}));
        assert_eq!(keys(admin, "*"), [counted]);
    }
}

#[test]
fn what_is_set_again_takes_no_place() {
    let server = server(2);
    for key in ["a", "b", "b", "a", "b"] {
        set(&server, key);
    }
    assert_eq!(keys(server.admin(), "*"), ["a", "b"]);
}

#[test]
fn what_is_over_makes_room_first() {
    let options = ServerOptions::memory()
        .set("cache.max_keys", 2)
        .set("cache.cleanup_sec", 3_600);
    let server = Server::start(&options);
    let admin = server.admin();
    set(&server, "old");
    done(admin, "set", &json!({"key": "over", "value": 1, "ttl": 1}));
    boltq_tests::harness::eventually(super::client::SOON, "the end of the value", || {
        (get(admin, "get?key=over").0 == 404).then_some(())
    });
    set(&server, "new");
    assert_eq!(keys(admin, "*"), ["new", "old"]);
    let stats = look(admin, "stats")["stats"].take();
    assert_eq!((&stats["expired"], &stats["evicted"]), (&json!(1), &json!(0)));
}
