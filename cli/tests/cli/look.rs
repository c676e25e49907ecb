//! What only looks: statistics, health, queues, the messages in them.

use crate::done;
use crate::fake::Fake;

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
fn a_peeked_message_has_no_token() {
    let mut fake = Fake::with(&[b"hello"]);
    fake.forget_tokens();
    let peeked = fake.run(&["queue", "peek", "a", "-output", "json"]).stdout;
    assert!(!peeked.contains("delivery_token"), "{peeked}");
}
