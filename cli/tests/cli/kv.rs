//! `boltq kv …` against a server that remembers what it was asked.

use crate::fake::{Fake, KvAsked};
use boltq_proto::kv::v1::set_request::Condition;
use boltq_proto::kv::v1::{DeleteRequest, ExpireRequest, IncrementRequest, SetRequest, WatchRequest};

/// Runs a command that succeeds without a word on stderr.
#[track_caller]
fn printed(fake: &Fake, args: &[&str]) -> String {
    let ran = fake.run(args);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}: {ran:?}");
    ran.stdout
}

#[test]
fn every_command_prints_its_result_for_people_and_for_programs() {
    let fake = Fake::start();
    let entry = r#""key":"k","value":"value","value_encoding":"text","version":7,"created_at":"1970-01-01T00:00:00Z","expires_at":null"#;
    let stats =
        r#"{"enabled":true,"keys":1,"bytes":6,"hits":0,"misses":0,"sets":12,"deletes":0,"expired":0,"evicted":0}"#;
    let entry_line = format!("{{{entry}}}");
    let watched = format!(
        "{{\"event\":\"put\",{entry}}}\n{{\"event\":\"ready\",\"version\":7}}\n\
         {{\"event\":\"removed\",\"key\":\"gone\\n\",\"version\":8}}\n{{\"event\":\"flushed\",\"version\":9}}"
    );
    for (args, table, json) in [
        (&["get", "k"][..], "value\n", &entry_line[..]),
        (&["set", "k", "v"], "8\n", r#"{"key":"k","version":8}"#),
        (&["del", "k"], "deleted k\n", r#"{"key":"k","deleted":true}"#),
        (&["del", "x"], "x had no value\n", r#"{"key":"x","deleted":false}"#),
        (&["exists", "k"], "true\n", r#"{"key":"k","exists":true}"#),
        (&["exists", "x"], "false\n", r#"{"key":"x","exists":false}"#),
        (
            &["keys"],
            "a\nb\\u{1b}\nk\n",
            "{\"key\":\"a\"}\n{\"key\":\"b\\u001b\"}\n{\"key\":\"k\"}",
        ),
        (
            &["expire", "k", "-ttl", "5s"],
            "changed k\n",
            r#"{"key":"k","found":true}"#,
        ),
        (
            &["expire", "x", "-ttl", "5s"],
            "x has no value\n",
            r#"{"key":"x","found":false}"#,
        ),
        (
            &["incr", "k", "-by", "-5"],
            "-5\n",
            r#"{"key":"k","value":-5,"version":8}"#,
        ),
        (&["flush"], "removed 3 keys\n", r#"{"removed":3}"#),
        (
            &["stats"],
            "keys     1\nbytes    6\nhits     0\nmisses   0\nsets     12\ndeletes  0\nexpired  0\nevicted  0\n",
            stats,
        ),
        (
            &["watch", "-max", "4"],
            "put k value\nready\nremoved gone\\n\nflushed\n",
            &watched[..],
        ),
    ] {
        let args = [&["kv"], args].concat();
        assert_eq!(printed(&fake, &args), table, "{args:?}");
        assert_eq!(
            printed(&fake, &[&args[..], &["-o", "json"]].concat()),
            format!("{json}\n"),
            "{args:?}"
        );
    }
}

#[test]
fn what_was_typed_is_what_is_asked_for() {
    let fake = Fake::start();
    let set = |value: &str| SetRequest {
        key: "a b".to_owned(),
        value: value.to_owned().into(),
        ..SetRequest::default()
    };
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let with = |condition| SetRequest {
        condition: Some(condition),
        ..set("v")
    };
    for (args, asked) in [
        (&["set", "a b", "-5"][..], KvAsked::Set(set("-5"))),
        (&["set", "a b", ""], KvAsked::Set(set(""))),
        (&["set", "a b", "--", "--ttl"], KvAsked::Set(set("--ttl"))),
        (
            &["set", "a b", "v", "-ttl", "1m"],
            KvAsked::Set(SetRequest {
                ttl: seconds(60),
                ..set("v")
            }),
        ),
        (
            &["set", "-ttl", "0", "a b", "v"],
            KvAsked::Set(SetRequest {
                ttl: seconds(0),
                ..set("v")
            }),
        ),
        (
            &["set", "a b", "v", "-if-absent"],
            KvAsked::Set(with(Condition::IfAbsent(true))),
        ),
        (
            &["set", "a b", "v", "-if-present"],
            KvAsked::Set(with(Condition::IfPresent(true))),
        ),
        (
            &["set", "a b", "v", "-if-version", "9"],
            KvAsked::Set(with(Condition::IfVersion(9))),
        ),
        (
            &["del", "k", "-if-version", "9"],
            KvAsked::Delete(DeleteRequest {
                key: "k".to_owned(),
                if_version: Some(9),
            }),
        ),
        (
            &["expire", "k", "-ttl", "0"],
            KvAsked::Expire(ExpireRequest {
                key: "k".to_owned(),
                ttl: seconds(0),
            }),
        ),
        (
            &["incr", "k"],
            KvAsked::Increment(IncrementRequest {
                key: "k".to_owned(),
                delta: Some(1),
            }),
        ),
        (
            &["watch", "user:*", "-initial", "-max", "1"],
            KvAsked::Watch(WatchRequest {
                pattern: "user:*".to_owned(),
                initial: true,
            }),
        ),
    ] {
        printed(&fake, &[&["kv"], args].concat());
        assert_eq!(fake.asked().kv.pop(), Some(asked), "{args:?}");
    }
}

#[test]
fn what_was_not_done_exits_with_1_and_says_why() {
    let fake = Fake::start();
    for (args, stderr) in [
        (&["get", "x"][..], "error: \"x\" has no value\n"),
        (
            &["set", "k", "v", "-if-absent"],
            "error: condition not met: the value has version 7 (CONDITION_NOT_MET)\n",
        ),
    ] {
        let ran = fake.run(&[&["kv"], args].concat());
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
            (Some(1), "", stderr)
        );
    }
    let ran = fake.run(&["kv", "watch"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(1), 4), "{ran:?}");
    assert!(ran.stderr.starts_with("error: the server ended the stream"), "{ran:?}");
    let none = fake.run(&["kv", "keys", "none*"]);
    assert_eq!(
        (none.code, none.stdout.as_str(), none.stderr.as_str()),
        (Some(0), "", "no keys\n")
    );
}

#[test]
fn what_contradicts_itself_is_wrong_usage() {
    let fake = Fake::start();
    for args in [
        &["set", "k", "v", "-if-absent", "-if-version", "7"][..],
        &["set", "k", "v", "-if-absent", "-if-present"],
        &["set", "k"],
        &["expire", "k"],
        &["incr", "k", "-by", "1.5"],
        &["watch", "-max", "0"],
    ] {
        let ran = fake.run(&[&["kv"], args].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
    assert!(fake.asked().kv.is_empty());
}
