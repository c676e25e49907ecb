//! Addresses, certificates and keys, and errors that say which of them is wrong.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::fake::{Fake, boltq, run};
use crate::{done, failed};

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

/// Reads all that comes: a connection that is closed before takes what was sent on it away again.
fn answer_health(mut stream: TcpStream) {
    let mut request = [0; 1_024];
    let _ = stream.read(&mut request);
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{\"status\":\"ok\"}");
    let _ = stream.shutdown(Shutdown::Write);
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
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
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_health(stream));
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
