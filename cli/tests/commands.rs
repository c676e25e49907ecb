//! Every command against a server that remembers what it was asked: requests, output, exit codes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    dead_code,
    reason = "a helper of a test may fail it, and this one serves several files"
)]

mod fake;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use boltq_proto::queue::v1::AckLevel;
use fake::{Fake, ID, Ran, UNKNOWN_ID, boltq, run};

fn done(stdout: &str) -> Ran {
    Ran {
        code: Some(0),
        stdout: stdout.to_owned(),
        stderr: String::new(),
    }
}

fn failed(code: i32, stderr: &str) -> Ran {
    Ran {
        code: Some(code),
        stdout: String::new(),
        stderr: stderr.to_owned(),
    }
}

#[test]
fn publish_in_the_documented_form_prints_the_id() {
    let fake = Fake::start();
    let ran = fake.run(&[
        "publish",
        "-topic",
        "email_jobs",
        "-payload",
        r#"{"to":"user@example.com"}"#,
    ]);
    assert_eq!(ran, done(&format!("{ID}\n")));
    let asked = fake.asked();
    let message = asked.published[0].message.as_ref().unwrap();
    assert_eq!(asked.published[0].queue, "email_jobs");
    assert_eq!(message.payload, r#"{"to":"user@example.com"}"#);
    assert_eq!(message.content_type, "application/json");
    assert_eq!(asked.keys, [None]);
}

#[test]
fn the_api_key_goes_with_every_call() {
    let fake = Fake::start();
    let mut command = boltq(&[
        "publish",
        "--addr",
        &fake.addr.to_string(),
        "-topic",
        "a",
        "-payload",
        "x",
        "-o",
        "json",
    ]);
    let ran = run(command.env("BOLTQ_API_KEY", "secret"), b"");
    assert_eq!(ran, done(&format!("{{\"queue\":\"a\",\"message_id\":\"{ID}\"}}\n")));
    assert_eq!(fake.asked().keys, [Some("secret".to_owned())]);
}

#[test]
fn every_line_of_stdin_is_published_and_refused_ones_are_named() {
    let fake = Fake::start();
    let ran = fake.run_with_input(&["publish", "-topic", "a", "-file", "-"], b"one\n\nrefuse me\n{}\n");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.starts_with("published 2 messages to a in "), "{ran:?}");
    assert!(ran.stdout.ends_with(" s, refused 1\n"), "{ran:?}");
    assert_eq!(
        ran.stderr,
        "line 3: no (INVALID_HEADERS)\nerror: 1 of 3 messages were refused\n"
    );
    let messages: Vec<_> = fake
        .asked()
        .batches
        .iter()
        .flat_map(|batch| batch.messages.clone())
        .collect();
    let sent: Vec<_> = messages
        .iter()
        .map(|m| (&m.payload[..], m.content_type.as_str()))
        .collect();
    assert_eq!(
        sent,
        [(&b"one"[..], ""), (b"refuse me", ""), (b"{}", "application/json")]
    );
}

#[test]
fn a_publisher_that_waits_for_less_gets_no_ids() {
    let fake = Fake::start();
    let publish = ["publish", "-topic", "a", "-file", "-"];
    for (option, level) in [("leader", AckLevel::Leader), ("none", AckLevel::None)] {
        let ran = fake.run_with_input(&[&publish[..], &["-ack-level", option]].concat(), b"one\nrefuse me\n");
        assert_eq!(ran.code, Some(1));
        assert!(ran.stdout.starts_with("published 1 message to a in "), "{ran:?}");
        assert!(ran.stdout.ends_with(" s, refused 1\n"), "{ran:?}");
        assert_eq!(fake.asked().batches.pop().unwrap().ack_level(), level);
        let ran = fake.run_with_input(
            &[&publish[..], &["-print-ids", "-ack-level", option]].concat(),
            b"one\n",
        );
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains("--print-ids needs --ack-level quorum"), "{ran:?}");
    }
    let ran = fake.run_with_input(
        &[&publish[..], &["-print-ids", "-ack-level", "quorum"]].concat(),
        b"one\n",
    );
    assert_eq!((ran.code, ran.stdout), (Some(0), format!("{ID}\n")));
}

#[test]
fn a_stream_that_breaks_leaves_lines_that_are_named() {
    let fake = Fake::start();
    let ran = fake.run_with_input(&["publish", "-topic", "a", "-file", "-"], b"one\nbreak here\nthree\n");
    assert_eq!(ran.code, Some(1));
    let error = "the server ended the stream; whether the server carried the call out is unknown";
    assert_eq!(ran.stderr, format!("lines 1 to 3 are not confirmed\nerror: {error}\n"));
}

#[test]
fn ids_of_a_file_come_alone_and_in_order() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "x\n".repeat(2_500)).unwrap();
    let fake = Fake::start();
    let ran = fake.run(&[
        "publish",
        "-topic",
        "a",
        "-file",
        file.path().to_str().unwrap(),
        "-print-ids",
    ]);
    assert_eq!(ran.stdout, format!("{ID}\n").repeat(2_500));
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(0), "published 2500 and refused 0 messages\n")
    );
    assert!(
        fake.asked()
            .batches
            .iter()
            .all(|batch| batch.messages.len() <= 1_000 && batch.queue == "a")
    );
}

#[test]
fn a_line_is_published_before_the_input_ends() {
    let fake = Fake::start();
    let mut command = boltq(&["publish", "-topic", "a", "-file", "-", "-print-ids"]);
    let mut child = command.env("BOLTQ_ADDR", fake.addr.to_string()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        std::io::Write::write_all(&mut stdin, b"line\n").unwrap();
        let mut id = String::new();
        stdout.read_line(&mut id).unwrap();
        assert_eq!(id.trim_end(), ID);
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let ran = Fake::start().run(&["publish", "-topic", "a", "-file", "/nowhere"]);
    assert_eq!(
        ran,
        failed(1, "error: /nowhere: No such file or directory (os error 2)\n")
    );
}

#[test]
fn consume_leases_one_message_and_leaves_it_to_be_acknowledged() {
    let fake = Fake::with(&[b"hello", b"other"]);
    let ran = fake.run(&["consume", "-topic", "a", "-wait", "5s", "-lease", "1m"]);
    let published = "1970-01-01T00:00:00Z";
    let block = format!("id        {ID}\nattempts  0\npublished {published}\nheader    k=v\npayload   hello\n\n");
    assert_eq!(ran, done(&block));
    let asked = fake.asked();
    assert_eq!(asked.consumed[0].max_messages, 1);
    assert_eq!(asked.consumed[0].wait.unwrap().seconds, 5);
    assert_eq!(asked.consumed[0].lease.unwrap().seconds, 60);
    assert!(asked.acked.is_empty());
}

#[test]
fn consume_with_ack_settles_what_it_printed_by_token() {
    let fake = Fake::with(&[b"1", b"2", b"3"]);
    let ran = fake.run(&["consume", "-topic", "a", "-max", "5", "-ack", "-output", "json"]);
    assert_eq!(
        (ran.code, ran.stdout.lines().count(), ran.stderr.as_str()),
        (Some(0), 3, "")
    );
    let mut tokens = fake.asked().acked[0].delivery_tokens.clone();
    tokens.sort();
    assert_eq!(tokens, [&[1][..], &[2], &[3]]);
}

#[test]
fn an_empty_queue_is_no_error_and_no_output() {
    let ran = Fake::start().run(&["consume", "-topic", "a"]);
    assert_eq!(
        ran,
        Ran {
            code: Some(0),
            stdout: String::new(),
            stderr: "no message in a\n".into()
        }
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error_and_nothing_is_acknowledged() {
    let fake = Fake::with(&[b"hello"]);
    let mut command = boltq(&["consume", "-topic", "a", "-ack"]);
    let mut child = command.env("BOLTQ_ADDR", fake.addr.to_string()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
    assert!(fake.asked().acked.is_empty());
}

#[test]
fn follow_ends_after_max_messages_and_acknowledges_just_those() {
    let fake = Fake::with(&[b"1", b"2", b"3"]);
    let ran = fake.run(&["consume", "-topic", "a", "-follow", "-max", "2", "-ack", "-o", "json"]);
    assert_eq!(
        (ran.code, ran.stdout.lines().count(), ran.stderr.as_str()),
        (Some(0), 2, "")
    );
    let asked = fake.asked();
    assert_eq!(asked.subscribed[0].max_in_flight, 2);
    let mut tokens = asked.stream_acked.clone();
    tokens.sort();
    assert_eq!(tokens, [&[1][..], &[2]]);
}

#[test]
fn follow_goes_on_until_it_is_interrupted() {
    let fake = Fake::with(&[b"1", b"2"]);
    let mut command = boltq(&["consume", "-topic", "a", "-follow", "-prefetch", "7", "-o", "json"]);
    let mut child = command.env("BOLTQ_ADDR", fake.addr.to_string()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("{\"message_id\":"), "{line}");
    }
    let interrupted = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupted.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(fake.asked().subscribed[0].max_in_flight, 7);
}

#[test]
fn ack_and_nack_take_several_ids_and_name_those_that_were_not_settled() {
    let fake = Fake::start();
    assert_eq!(fake.run(&["ack", "-id", ID]), done("acknowledged 1 message\n"));
    let ran = fake.run(&["nack", "-id", ID, UNKNOWN_ID, "-delay", "10s", "-o", "json"]);
    let failure = format!("{{\"message_id\":\"{UNKNOWN_ID}\",\"reason\":\"NOT_FOUND\"}}");
    assert_eq!(ran.stdout, format!("{{\"settled\":1,\"failures\":[{failure}]}}\n"));
    let why = "unknown, settled before, expired or purged (NOT_FOUND)";
    assert_eq!(ran.stderr, format!("error: message {UNKNOWN_ID} not settled: {why}\n"));
    assert_eq!(ran.code, Some(1));
    assert_eq!(
        fake.run(&["nack", "-id", ID, "-dead-letter"]),
        done("dead-lettered 1 message\n")
    );
    let asked = fake.asked();
    assert_eq!(asked.nacked[0].delay.unwrap().seconds, 10);
    assert!(asked.nacked[1].dead_letter);
}

#[test]
fn many_ids_are_settled_by_several_calls() {
    let fake = Fake::start();
    let ids = vec![ID; 1_001];
    assert_eq!(
        fake.run(&[&["ack", "-id"], &ids[..]].concat()),
        done("acknowledged 1001 messages\n")
    );
    let calls: Vec<_> = fake.asked().acked.iter().map(|ack| ack.message_ids.len()).collect();
    assert_eq!(calls, [1_000, 1]);
}

#[test]
fn stats_are_a_table_or_the_names_of_the_api() {
    let fake = Fake::start();
    let table = "\
version        0.1.0
uptime         12s
storage        disk, 32.0 MiB
published      4
consumed       0
acked          0
nacked         0
expired        0
dead lettered  0
dropped        0
rejected       0
pending        0
delayed        0

QUEUE       READY
email_jobs      3

DEAD LETTERS            READY
email_jobs_dead_letter      1
";
    assert_eq!(fake.run(&["stats"]), done(table));
    let json = concat!(
        r#"{"queues":{"email_jobs":3},"dead_letters":{"email_jobs_dead_letter":1},"pending":0,"delayed":0,"#,
        r#""published":4,"consumed":0,"acked":0,"nacked":0,"expired":0,"dead_lettered":0,"dropped":0,"rejected":0,"#,
        r#""uptime":"12.500s","version":"0.1.0","storage":{"mode":"disk","bytes":33554432,"writable":true}}"#,
        "\n"
    );
    assert_eq!(fake.run(&["stats", "--output", "json"]), done(json));
}

#[test]
fn health_is_what_the_server_says() {
    let fake = Fake::start();
    assert_eq!(fake.run(&["health"]), done("SERVING\n"));
    assert_eq!(fake.run(&["health", "-o", "json"]), done("{\"status\":\"SERVING\"}\n"));
}

#[test]
fn queues_are_listed_over_all_pages() {
    let fake = Fake::start();
    let table = "\
QUEUE  READY  LEASED  DELAYED  DEAD LETTERS  CONSUMERS
a          3       0        0             1          0
b          3       0        0             1          0
c          3       0        0             1          0
";
    assert_eq!(fake.run(&["queue", "list"]), done(table));
    assert_eq!(fake.run(&["queue", "list", "-o", "json"]).stdout.lines().count(), 3);
    assert!(
        fake.run(&["queue", "get", "a"])
            .stdout
            .starts_with("name          a\nready         3\n")
    );
}

#[test]
fn peek_shows_messages_and_takes_none() {
    let fake = Fake::with(&[b"1", b"2", b"3"]);
    for _ in 0..2 {
        assert_eq!(
            fake.run(&["queue", "peek", "a", "-max", "2", "-o", "json"])
                .stdout
                .lines()
                .count(),
            2
        );
    }
}

#[test]
fn what_only_looks_can_ask_for_what_is_current() {
    let fake = Fake::start();
    let commands: [&[&str]; 4] = [
        &["stats"],
        &["queue", "list"],
        &["queue", "get", "a"],
        &["queue", "peek", "a"],
    ];
    for command in commands {
        for linearizable in [false, true] {
            fake.asked().linearizable.clear();
            let option: &[&str] = if linearizable { &["--linearizable"] } else { &[] };
            assert_eq!(fake.run(&[command, option].concat()).code, Some(0));
            let asked = std::mem::take(&mut fake.asked().linearizable);
            // A list is asked for by pages.
            assert!(!asked.is_empty(), "{command:?}");
            assert!(asked.iter().all(|asked| *asked == linearizable), "{command:?}");
        }
    }
}

#[test]
fn purge_says_how_many_and_a_wrong_name_says_where_to_look() {
    let fake = Fake::start();
    assert_eq!(
        fake.run(&["queue", "purge", "email_jobs"]),
        done("purged 1204 messages from email_jobs\n")
    );
    let json = "{\"queue\":\"email_jobs\",\"purged\":1204}\n";
    assert_eq!(
        fake.run(&["queue", "purge", "email_jobs", "--output", "json"]),
        done(json)
    );
    let stderr = "error: queue \"emial_jobs\" not found (QUEUE_NOT_FOUND); see `boltq queue list`\n";
    assert_eq!(fake.run(&["queue", "purge", "emial_jobs"]), failed(1, stderr));
    assert_eq!(
        fake.run(&["queue", "purge-dead-letters", "a"]),
        done("purged 1 dead letter from a\n")
    );
    let some = [
        "queue", "redrive", "a", "--header", "k=v", "--max", "5", "--rate", "100",
    ];
    assert_eq!(fake.run(&some), done("sent 106 dead letters back to a\n"));
    let broken_off = fake.run(&["queue", "redrive", "a", "--output", "json"]);
    assert_eq!(broken_off.stdout, "{\"queue\":\"a\",\"redriven\":1}\n");
    assert_eq!(broken_off.code, Some(1));
}

#[test]
fn a_queue_is_created_with_what_was_given_and_shows_it() {
    let fake = Fake::start();
    let args = [
        "queue",
        "create",
        "a",
        "-max-retry",
        "0",
        "-ack-timeout",
        "1m500ms",
        "-overflow",
        "drop-oldest",
        "-paused",
        "-max-length",
        "5",
        "-output",
        "json",
    ];
    let ran = fake.run(&args);
    let settings = r#"{"max_retry":0,"ack_timeout":"60.500s","max_length":5,"overflow":"DROP_OLDEST","paused":true}"#;
    assert!(ran.stdout.ends_with(&format!("\"settings\":{settings}}}\n")), "{ran:?}");
    let ran = fake.run(&["queue", "create", "a", "--dead-letter-queue", "morgue"]);
    assert!(ran.stdout.ends_with("\ndead letter queue  morgue\n"), "{ran:?}");
}

#[test]
fn a_change_of_a_queue_names_what_it_changes() {
    let fake = Fake::start();
    for args in [
        &[
            "queue",
            "update",
            "a",
            "--paused=false",
            "--max-length",
            "7",
            "--reset",
            "ack-timeout",
        ][..],
        &["queue", "pause", "a"],
        &["queue", "resume", "a"],
    ] {
        assert_eq!(fake.run(args).code, Some(0), "{args:?}");
    }
    let masks: [&[&str]; 3] = [&["max_length", "paused", "ack_timeout"], &["paused"], &["paused"]];
    assert_eq!(fake.asked().masks, masks);
    let nothing = fake.run(&["queue", "update", "a"]);
    let stderr = "error: nothing to change; see `boltq queue update --help`\n";
    assert_eq!(nothing, failed(2, stderr));
}

#[test]
fn deleting_a_queue_says_what_went_with_it() {
    let fake = Fake::start();
    assert_eq!(fake.run(&["queue", "delete", "a"]), done("deleted a with 7 messages\n"));
    let json = "{\"queue\":\"a\",\"deleted_messages\":0}\n";
    assert_eq!(
        fake.run(&["queue", "delete", "a", "--if-empty", "--output", "json"]),
        done(json)
    );
}

#[test]
fn without_a_server_the_error_says_how_to_get_one() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = run(&mut boltq(&["stats", "--addr", &free.to_string()]), b"");
    let why = "Connection refused (os error 111); start one with `make run`, or set BOLTQ_ADDR or --addr";
    assert_eq!(ran, failed(1, &format!("error: no server at {free}: {why}\n")));
}

#[test]
fn a_server_that_does_not_speak_grpc_is_an_error_and_not_a_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let started = Instant::now();
    let ran = run(&mut boltq(&["stats", "--addr", &addr]), b"");
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(
        ran.stderr
            .starts_with(&format!("error: {addr} does not answer gRPC calls: ")),
        "{ran:?}"
    );
}

#[test]
fn tls_is_never_left_out_silently() {
    let plain = "http://localhost:1";
    let why = "the address says http://, and TLS is asked for too; leave out one of them";
    for variable in [
        ("BOLTQ_TLS_ENABLED", "true"),
        ("BOLTQ_CA_FILE", "ca.pem"),
        ("BOLTQ_TLS_CERT", "c.pem"),
        ("BOLTQ_TLS_SERVER_NAME", "a"),
    ] {
        let ran = run(boltq(&["stats", "--addr", plain]).env(variable.0, variable.1), b"");
        assert_eq!(ran, failed(2, &format!("error: {why}\n")), "{variable:?}");
    }
    // Somebody who does not speak it gets no call in plain text.
    let fake = Fake::start();
    let ran = run(
        boltq(&[
            "publish",
            "--addr",
            &fake.addr.to_string(),
            "-topic",
            "q",
            "-payload",
            "x",
        ])
        .env("BOLTQ_TLS_ENABLED", "true")
        .env("BOLTQ_TLS_INSECURE", "true"),
        b"",
    );
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(
        ran.stderr.contains(&format!("error: no TLS with {}: ", fake.addr)),
        "{ran:?}"
    );
    assert!(fake.asked().published.is_empty());
}

#[test]
fn files_of_tls_that_cannot_be_used_are_named() {
    for (flags, why) in [
        (
            &["-ca-file", "/nowhere/ca.pem"][..],
            "certificate \"/nowhere/ca.pem\" cannot be used: ",
        ),
        (
            &["-tls-insecure", "-cert-file", "c"],
            "a certificate needs its key: --key-file or BOLTQ_TLS_KEY",
        ),
        (
            &["-tls-insecure", "-cert-file", "/nowhere/c", "-key-file", "/nowhere/k"],
            "key \"/nowhere/k\" cannot be used: ",
        ),
        (
            &["-tls-insecure", "-tls-server-name", "a b"],
            "\"a b\" is no name that a certificate can have",
        ),
    ] {
        let ran = run(&mut boltq(&[&["stats", "--addr", "localhost:1"], flags].concat()), b"");
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(why), "{ran:?}");
    }
}

#[test]
fn keys_are_made_and_hashed_without_a_server() {
    let made = run(&mut boltq(&["key", "generate", "-o", "json"]), b"");
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    let (key, hash) = (made["key"].as_str().unwrap(), made["hash"].as_str().unwrap());
    for line in [key.to_owned(), format!("{key}\n"), format!("{key}\r\n")] {
        assert_eq!(
            run(&mut boltq(&["key", "hash"]), line.as_bytes()),
            done(&format!("{hash}\n"))
        );
    }
    let short = run(&mut boltq(&["key", "hash"]), b"s3cret\n");
    assert_eq!((short.code, short.stdout.as_str()), (Some(2), ""));
    assert!(
        short.stderr.starts_with("error: the key has 6 characters; "),
        "{short:?}"
    );
}

#[test]
fn an_address_that_is_none_is_refused_and_says_what_is_wanted() {
    let wanted = "write HOST:PORT, as localhost:9091 or [::1]:9091, in --addr or BOLTQ_ADDR";
    for (addr, why) in [
        ("localhost:abc", "port \"abc\" is not a number from 1 to 65535"),
        ("localhost:0", "port \"0\" is not a number from 1 to 65535"),
        ("localhost:99999", "port \"99999\" is not a number from 1 to 65535"),
        ("::1", "an IPv6 address needs brackets"),
        ("", "it is empty"),
    ] {
        let refused = failed(2, &format!("error: address {addr:?} cannot be used: {why}; {wanted}\n"));
        assert_eq!(run(&mut boltq(&["stats", "--addr", addr]), b""), refused);
        assert_eq!(run(boltq(&["stats"]).env("BOLTQ_ADDR", addr), b""), refused);
    }
}

#[test]
fn a_key_that_cannot_be_sent_as_it_is_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let fake = Fake::start();
    for key in [&b"\xff\xfe"[..], "schl\u{fc}ssel".as_bytes(), b"line\nbreak", b"blank "] {
        let mut command = boltq(&["stats", "--addr", &fake.addr.to_string()]);
        let ran = run(command.env("BOLTQ_API_KEY", std::ffi::OsStr::from_bytes(key)), b"");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(
            ran.stderr.starts_with("error: BOLTQ_API_KEY cannot be sent: "),
            "{ran:?}"
        );
    }
    assert!(fake.asked().keys.is_empty());
}

#[test]
fn wrong_usage_exits_with_2_and_help_with_0() {
    assert_eq!(run(&mut boltq(&["publish"]), b"").code, Some(2));
    assert_eq!(run(&mut boltq(&["ack", "-id", "12"]), b"").code, Some(2));
    assert_eq!(run(boltq(&["stats"]).env("BOLTQ_ADDR", "a:1/path"), b"").code, Some(2));
    let help = run(&mut boltq(&["-help"]), b"");
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(help.stdout.contains("BOLTQ_API_KEY"));
}

#[test]
fn a_node_alone_has_no_cluster_and_says_so() {
    let fake = Fake::start();
    let ran = fake.run(&["cluster", "status"]);
    assert_eq!(ran, done("clustering is not enabled on this node\n"));
    let ran = fake.run(&["cluster", "status", "-output", "json"]);
    assert_eq!(ran, done("{\"enabled\":false}\n"));
}

#[test]
fn nodes_join_as_voters_unless_something_else_is_asked_for() {
    let fake = Fake::start();
    assert_eq!(
        fake.run(&["cluster", "join", "10.0.0.4:9100"]),
        done("n4 joined as voter\n")
    );
    let ran = fake.run(&[
        "cluster",
        "join",
        "-non-voter",
        "-node-id",
        "n4",
        "10.0.0.4:9100",
        "-o",
        "json",
    ]);
    let node = concat!(
        r#"{"node_id":"n4","raft_address":"n4:9100","messaging_address":"","admin_address":"","#,
        r#""voter":false,"version":""}"#
    );
    assert_eq!(
        ran,
        done(&format!("{{\"node\":{node},\"groups\":[\"meta\",\"queue\"]}}\n"))
    );
    let asked = fake.asked();
    let joined: Vec<_> = asked
        .joined
        .iter()
        .map(|join| (join.node_id.as_str(), join.address.as_str(), join.non_voter))
        .collect();
    assert_eq!(joined, [("", "10.0.0.4:9100", false), ("n4", "10.0.0.4:9100", true)]);
}

#[test]
fn a_node_that_is_removed_is_named_and_an_unknown_one_is_refused() {
    let fake = Fake::start();
    assert_eq!(fake.run(&["cluster", "leave", "n4"]), done("n4 was removed\n"));
    let error = "error: node \"n9\" is not in the cluster (NODE_NOT_FOUND); see `boltq cluster status`\n";
    assert_eq!(fake.run(&["cluster", "leave", "n9"]), failed(1, error));
    assert_eq!(fake.asked().left, ["n4"]);
}

#[test]
fn leadership_goes_to_the_node_that_is_named_or_to_any() {
    let fake = Fake::start();
    for node in [None, Some("n2")] {
        let args: Vec<_> = ["cluster", "transfer", "queue"].into_iter().chain(node).collect();
        assert_eq!(fake.run(&args), done("queue is led by n2\n"));
    }
    let asked = fake.asked();
    let to: Vec<_> = asked
        .transferred
        .iter()
        .map(|call| (call.group.as_str(), call.node_id.as_str()))
        .collect();
    assert_eq!(to, [("queue", ""), ("queue", "n2")]);
}
