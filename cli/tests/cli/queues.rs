//! What changes queues and what lies in them.

use crate::fake::{Fake, UNKNOWN_ID};
use crate::{done, failed};

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
fn scheduled_messages_are_listed_page_by_page_cancelled_and_rescheduled() {
    let fake = Fake::start();
    let id = "ab".repeat(16);
    let listed = fake.run(&["queue", "scheduled", "a", "-o", "json"]);
    let line =
        |time: &str| format!("{{\"message_id\":\"{id}\",\"deliver_at\":\"1970-01-01T00:{time}Z\",\"priority\":3}}\n");
    assert_eq!(listed, done(&(line("01:00") + &line("02:00"))));
    assert_eq!(
        fake.run(&["queue", "scheduled", "a", "--max", "1", "-o", "json"]),
        done(&line("01:00"))
    );
    let sizes: Vec<_> = fake.asked().listed.iter().map(|asked| asked.page_size).collect();
    assert_eq!(sizes, [1_000, 1_000, 1]);
    let table = fake.run(&["queue", "scheduled", "a", "--max", "1"]).stdout;
    assert!(
        table.starts_with("MESSAGE") && table.contains("DUE") && table.contains("1970-01-01T00:01:00Z"),
        "{table}"
    );

    assert_eq!(
        fake.run(&["queue", "cancel", "--id", &id]),
        done("cancelled 1 message\n")
    );
    let unknown = fake.run(&["queue", "cancel", "--id", UNKNOWN_ID]);
    assert_eq!(unknown.code, Some(1));

    let delayed = fake.run(&["queue", "reschedule", "-id", &id, "--delay", "1m"]);
    assert_eq!(delayed, done(&format!("{id} is due at 1970-01-01T00:01:00Z\n")));
    let at = [
        "queue",
        "reschedule",
        "-id",
        &id,
        "--at",
        "2026-01-31T08:00:00Z",
        "-o",
        "json",
    ];
    let expected = format!("{{\"message_id\":\"{id}\",\"deliver_at\":\"2026-01-31T08:00:00Z\"}}\n");
    assert_eq!(fake.run(&at), done(&expected));
    for wrong in [
        &["--delay", "1m", "--at", "2026-01-31T08:00:00Z"][..],
        &["--at", "soon"],
        &[],
    ] {
        let command = [&["queue", "reschedule", "-id", id.as_str()][..], wrong].concat();
        assert_eq!(fake.run(&command).code, Some(2), "{wrong:?}");
    }
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
fn a_number_that_is_too_small_is_a_value_that_is_wrong_and_no_option() {
    let fake = Fake::start();
    for option in ["-max-retry", "--max-length", "--max-length-bytes"] {
        let ran = fake.run(&["queue", "create", "a", option, "-1"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("invalid value '-1' for '--max-"), "{ran:?}");
        assert!(!ran.stderr.contains("-- -1"), "{ran:?}");
    }
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
