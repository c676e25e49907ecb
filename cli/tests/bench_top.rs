//! `bench`, `top`, `completions`, `extend`, and what a terminal gets, against a server that remembers what it was asked.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    dead_code,
    reason = "a helper of a test may fail it, and this one serves several files"
)]

mod fake;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fake::{Fake, boltq, run};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Longer than any machine stalls.
const PATIENCE: Duration = Duration::from_secs(60);

/// The other side of a terminal of 80 by 24.
struct Screen {
    keys: File,
    shown: Arc<Mutex<String>>,
}

impl Screen {
    fn new() -> (Self, OwnedFd) {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&ours, size).unwrap();
        let keys = File::from(ours);
        let (mut output, shown) = (keys.try_clone().unwrap(), Arc::<Mutex<String>>::default());
        let copy = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                copy.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        (Self { keys, shown }, theirs.into())
    }

    fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the text was shown after what was shown before `from`, and returns where it ends.
    fn await_text(&self, text: &str, from: usize) -> usize {
        let started = Instant::now();
        loop {
            let shown = self.shown.lock().unwrap().clone();
            if let Some(at) = shown[from..].find(text) {
                return from + at + text.len();
            }
            assert!(started.elapsed() < PATIENCE, "no {text:?} in {shown:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn ended(mut child: Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(started.elapsed() < PATIENCE, "it does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

fn on_terminal(command: &mut Command, terminal: &OwnedFd) -> Child {
    command.stdin(Stdio::from(terminal.try_clone().unwrap()));
    command.stdout(Stdio::from(terminal.try_clone().unwrap()));
    command.stderr(Stdio::from(terminal.try_clone().unwrap()));
    command.spawn().unwrap()
}

#[test]
fn every_shell_gets_a_script_and_bash_completes_with_it() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        // No server is needed.
        let ran = run(&mut boltq(&["completions", shell, "--addr", "localhost:1"]), b"");
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{shell}");
        for word in ["publish", "purge-dead-letters", "completions", "linearizable"] {
            assert!(ran.stdout.contains(word), "{word} for {shell}");
        }
    }
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), run(&mut boltq(&["completions", "bash"]), b"").stdout).unwrap();
    let bash = |args: &[&str]| Command::new("bash").args(args).arg(script.path()).output().unwrap();
    assert!(bash(&["-n"]).status.success());
    // What bash itself does when tab is pressed behind these words.
    let complete = r#"source "$0"; COMP_WORDS=($WORDS ""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _boltq boltq "" "${COMP_WORDS[COMP_CWORD - 1]}"; echo " ${COMPREPLY[*]} ""#;
    for (words, expected) in subcommands() {
        let mut command = Command::new("bash");
        let output = command
            .args(["-c", complete])
            .arg(script.path())
            .env("WORDS", &words)
            .output()
            .unwrap();
        let offered = String::from_utf8(output.stdout).unwrap();
        assert!(
            offered.contains(&format!(" {expected} ")),
            "{words} {expected}: {offered}"
        );
    }
}

/// Every command with what stands before it, as the help names them.
fn subcommands() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut open = vec!["boltq".to_owned()];
    while let Some(words) = open.pop() {
        let args: Vec<_> = words.split(' ').skip(1).chain(["--help"]).collect();
        let help = run(&mut boltq(&args), b"").stdout;
        let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in commands.take_while(|line| !line.is_empty()) {
            // Help that goes on in the next line is further to the right.
            if let Some(name) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) {
                let name = name.split(' ').next().unwrap().to_owned();
                open.push(format!("{words} {name}"));
                all.push((words.clone(), name));
            }
        }
    }
    assert!(all.len() > 30, "{all:?}");
    all
}

#[test]
fn a_lease_is_extended_by_the_token_that_consume_printed() {
    let fake = Fake::with(&[b"hello"]);
    let consumed = fake.run(&["consume", "-topic", "a", "-output", "json"]).stdout;
    let consumed: serde_json::Value = serde_json::from_str(&consumed).unwrap();
    let token = consumed["delivery_token"].as_str().unwrap();
    let ran = fake.run(&["extend", "-token", token, "-lease", "10m"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "extended 1 lease\n"));
    let asked = fake.asked().extended.pop().unwrap();
    assert_eq!(asked.delivery_tokens, [&[1][..]]);
    assert_eq!(asked.lease.unwrap().seconds, 600);

    let ran = fake.run(&["extend", "-token", token, "AAAA", "-lease", "10m", "-o", "json"]);
    let failure = r#"{"delivery_token":"AAAA","reason":"LEASE_LOST"}"#;
    assert_eq!(ran.stdout, format!("{{\"extended\":1,\"failures\":[{failure}]}}\n"));
    assert_eq!(
        ran.stderr,
        "error: lease AAAA not extended: it has ended (LEASE_LOST)\n"
    );
    assert_eq!(ran.code, Some(1));
    let ran = fake.run(&["extend", "-token", "no base64", "-lease", "10m"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("a token is base64"), "{ran:?}");
}

#[test]
fn a_peeked_message_has_no_token() {
    let mut fake = Fake::with(&[b"hello"]);
    fake.forget_tokens();
    let peeked = fake.run(&["queue", "peek", "a", "-output", "json"]).stdout;
    assert!(!peeked.contains("delivery_token"), "{peeked}");
}

#[test]
fn a_load_refuses_a_queue_that_is_in_use() {
    let fake = Fake::start();
    let ran = fake.run(&["bench", "-queue", "jobs"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    let why = "error: queue \"jobs\" is in use: messages 3, consumers 0; give another --queue, or --force";
    assert!(ran.stderr.starts_with(why), "{ran:?}");
    assert!(fake.asked().batches.is_empty());
    let ran = fake.run(&["bench", "-size", "1000000", "-batch", "5"]);
    assert_eq!(ran.code, Some(2));
}

#[test]
fn a_load_says_what_it_measured_and_purges_what_is_left() {
    let fake = Fake::start();
    let load = [
        "bench",
        "-queue",
        "empty",
        "-consumers",
        "0",
        "-warm-up",
        "0",
        "-duration",
        "100ms",
    ];
    let ran = fake.run(&[&load[..], &["-size", "100", "-batch", "10", "-o", "json"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["queue"], "empty");
    let published = report["published"]["messages"].as_u64().unwrap();
    assert_eq!(report["published"]["bytes"], published * 100);
    assert_eq!(
        (&report["delivered"], &report["failed"]),
        (&serde_json::Value::Null, &0.into())
    );
    let asked = fake.asked();
    assert!(asked.batches.iter().all(|batch| batch.messages.len() == 10));
    assert_eq!(asked.batches[0].queue, "empty");
    assert!(
        asked.batches[0]
            .messages
            .iter()
            .all(|message| message.payload.len() == 100)
    );
    // The queue was there before, so it stays.
    assert_eq!(
        (&asked.purged[..], &asked.deleted[..]),
        (&["empty".to_owned()][..], &[][..])
    );
    assert_eq!(asked.linearizable, [true, true]);
    drop(asked);
    let table = fake.run(&[&load[..], &["-publishers", "2"]].concat()).stdout;
    for part in [
        "queue         empty\n",
        "measured      0.",
        "published     ",
        "  answered in p50 ",
    ] {
        assert!(table.contains(part), "{table}");
    }
}

#[test]
fn a_load_deletes_a_queue_that_it_made_and_leaves_what_is_to_be_kept() {
    let fake = Fake::start();
    let load = [
        "bench",
        "-queue",
        "new",
        "-consumers",
        "0",
        "-warm-up",
        "0",
        "-duration",
        "50ms",
    ];
    assert_eq!(fake.run(&load).code, Some(0));
    assert_eq!(std::mem::take(&mut fake.asked().deleted), ["new"]);
    for option in ["-keep", "-force"] {
        assert_eq!(fake.run(&[&load[..], &[option]].concat()).code, Some(0));
    }
    let asked = fake.asked();
    assert_eq!((asked.deleted.len(), asked.purged.len()), (0, 0));
}

#[test]
fn a_load_whose_messages_are_refused_fails_and_says_why() {
    let fake = Fake::start();
    fake.refuse_all();
    let ran = fake.run(&[
        "bench",
        "-queue",
        "empty",
        "-consumers",
        "0",
        "-warm-up",
        "0",
        "-duration",
        "100ms",
    ]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains(": INVALID_HEADERS "), "{ran:?}");
    assert!(
        ran.stderr
            .starts_with("error: publishes or acknowledgements that failed: "),
        "{ran:?}"
    );
}

#[test]
fn a_load_that_is_interrupted_ends_with_its_result() {
    let fake = Fake::start();
    let (screen, terminal) = Screen::new();
    let mut command = boltq(&["bench", "-queue", "empty", "-consumers", "0", "-duration", "1h"]);
    command.env("BOLTQ_ADDR", fake.addr.to_string());
    command.stderr(Stdio::from(terminal.try_clone().unwrap()));
    let mut child = command.spawn().unwrap();
    // Progress is only for a terminal.
    screen.await_text("measuring 2 of 3600 s: ", 0);
    let interrupted = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupted.success());
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!(ended(child), Some(0));
    assert!(stdout.contains("published     "), "{stdout}");
}

#[test]
fn top_prints_one_frame_or_an_object() {
    let fake = Fake::start();
    let ran = fake.run(&["top", "-once", "-interval", "100ms", "-sort", "name"]);
    let expected = format!(
        "\
boltq 0.1.0 at {}  up 12s  disk 32.0 MiB
published 0.0/s  consumed 0.0/s  acked 0.0/s  nacked 0.0/s
ready 3  leased 0  delayed 0  dead letters 1  queues 3

    DEPTH  CHANGE/S     READY   LEASED  DELAYED     DEAD  CONS  QUEUE
        3         0         3        0        0        1     0  a
        3         0         3        0        0        1     0  b
        3         0         3        0        0        1     0  c
",
        fake.addr
    );
    assert_eq!((ran.code, ran.stdout, ran.stderr), (Some(0), expected, String::new()));
    let ran = fake.run(&["top", "-once", "-interval", "100ms", "-filter", "b", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["queues"].as_array().unwrap().len(), 1);
    assert_eq!(json["queues"][0]["change_per_second"], 0.0);
    let ran = fake.run(&["top"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--once"), "{ran:?}");
}

#[test]
fn top_follows_keys_and_leaves_the_terminal_as_it_was() {
    let fake = Fake::start();
    let (mut screen, terminal) = Screen::new();
    let before = rustix::termios::tcgetattr(&terminal).unwrap();
    let mut command = boltq(&["top", "-interval", "100ms"]);
    let child = on_terminal(command.env("BOLTQ_ADDR", fake.addr.to_string()), &terminal);
    let mut at = screen.await_text("\x1b[?1049h", 0);
    at = screen.await_text("by depth", at);
    screen.type_keys("n");
    at = screen.await_text("by name", at);
    screen.type_keys("/zz\r");
    at = screen.await_text("names with \"zz\"", at);
    screen.type_keys("\x1b");
    at = screen.await_text("by name\x1b[K", at);
    screen.type_keys("q");
    screen.await_text("\x1b[?1049l", at);
    assert_eq!(ended(child), Some(0));
    let after = rustix::termios::tcgetattr(&terminal).unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

#[test]
fn top_on_a_terminal_ends_with_a_signal_as_with_a_key() {
    let fake = Fake::start();
    let (screen, terminal) = Screen::new();
    let before = rustix::termios::tcgetattr(&terminal).unwrap();
    let mut command = boltq(&["top"]);
    let child = on_terminal(command.env("BOLTQ_ADDR", fake.addr.to_string()), &terminal);
    screen.await_text("by depth", 0);
    let terminated = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(terminated.success());
    screen.await_text("\x1b[?1049l", 0);
    assert_eq!(ended(child), Some(0));
    let after = rustix::termios::tcgetattr(&terminal).unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

#[test]
fn long_work_shows_on_a_terminal_how_far_it_is() {
    let fake = Fake::start();
    let (screen, terminal) = Screen::new();
    let mut command = boltq(&["publish", "-topic", "a", "-file", "-"]);
    command.env("BOLTQ_ADDR", fake.addr.to_string());
    command.stderr(Stdio::from(terminal.try_clone().unwrap()));
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (shown, started) = (Arc::clone(&screen.shown), Instant::now());
    while !shown.lock().unwrap().contains("messages, refused 0") {
        stdin.write_all(b"line\n").unwrap();
        assert!(started.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(5));
    }
    drop(stdin);
    assert_eq!(ended(child), Some(0));
    // The line is gone in the end.
    screen.await_text("\r\x1b[K", 0);

    let mut command = boltq(&["queue", "purge", "slow"]);
    command.env("BOLTQ_ADDR", fake.addr.to_string());
    command.stderr(Stdio::from(terminal.try_clone().unwrap()));
    let child = command.spawn().unwrap();
    screen.await_text("purging slow, ", 0);
    fake.finish_slow_purge();
    assert_eq!(ended(child), Some(0));
}

#[test]
fn a_wrong_address_is_told_from_a_server_that_is_down() {
    let ran = run(&mut boltq(&["stats", "--addr", "nowhere.invalid:9091"]), b"");
    assert_eq!(ran.code, Some(1));
    let why = "error: the host of nowhere.invalid:9091 is unknown: ";
    assert!(ran.stderr.starts_with(why), "{ran:?}");
    assert!(!ran.stderr.contains("make run"), "{ran:?}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{\"status\":\"ok\"}");
        }
    });
    let ran = run(&mut boltq(&["stats", "--addr", &addr]), b"");
    let why = "is the admin port of a server, which speaks HTTP; give its messaging port, 9091 by default";
    assert_eq!((ran.code, ran.stderr), (Some(1), format!("error: {addr} {why}\n")));
}

#[test]
fn a_wrong_key_is_told_from_a_missing_one() {
    let fake = Fake::start();
    fake.want_key();
    let publish = ["publish", "-topic", "a", "-payload", "x"];
    let ran = fake.run(&publish);
    assert!(
        ran.stderr.ends_with("set BOLTQ_API_KEY to the key of the server\n"),
        "{ran:?}"
    );
    let mut command = boltq(&publish);
    command
        .env("BOLTQ_ADDR", fake.addr.to_string())
        .env("BOLTQ_API_KEY", "wrong");
    let ran = run(&mut command, b"");
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr
            .ends_with("BOLTQ_API_KEY is set, and is no key of this server\n"),
        "{ran:?}"
    );
}
