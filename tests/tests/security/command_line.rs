//! `boltq` over TLS, and with keys that it made.

use std::process::{Command, Output};

use boltq_tests::harness::tls::Authority;
use boltq_tests::harness::{Server, ServerOptions, cli_binary};
use serde_json::{Value, json};

use crate::tls::start;

/// A command in an environment that has nothing but this.
fn boltq(server: &Server, args: &[&str], environment: &[(&str, &str)]) -> Output {
    let addr = format!("localhost:{}", server.messaging().port());
    let mut command = Command::new(cli_binary());
    command.args(args).env_clear().env("BOLTQ_ADDR", addr);
    command.envs(environment.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_command_line_believes_whom_it_is_told_to_and_nobody_else() {
    let authority = Authority::new();
    let server = start(&authority, ServerOptions::memory());
    let directory = server.directory().path();
    let ca = authority.write(directory).to_str().unwrap().to_owned();
    let publish = ["publish", "-topic", "q", "-payload", "x"];
    for environment in [
        &[("BOLTQ_CA_FILE", ca.as_str())][..],
        &[("BOLTQ_TLS_ENABLED", "true"), ("BOLTQ_TLS_INSECURE", "1")],
    ] {
        let done = boltq(&server, &publish, environment);
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
    let https = format!("https://127.0.0.1:{}", server.messaging().port());
    let done = boltq(&server, &["stats", "-addr", &https, "-ca-file", &ca], &[]);
    assert!(done.status.success(), "{}", text(&done.stderr));

    let (stranger, other) = (Authority::new(), directory.join("other"));
    std::fs::create_dir(&other).unwrap();
    let wrong = stranger.write(&other).to_str().unwrap().to_owned();
    for (environment, why) in [
        (
            &[("BOLTQ_CA_FILE", wrong.as_str())][..],
            "; give the certificate of its authority with --ca-file",
        ),
        (
            &[("BOLTQ_CA_FILE", ca.as_str()), ("BOLTQ_TLS_SERVER_NAME", "elsewhere")],
            "say with --tls-server-name",
        ),
    ] {
        let refused = boltq(&server, &publish, environment);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
    }
    let plain = boltq(&server, &publish, &[]);
    assert_eq!(plain.status.code(), Some(1));
    assert!(
        text(&plain.stderr).contains("--tls if it speaks TLS"),
        "{}",
        text(&plain.stderr)
    );
}

#[test]
fn a_certificate_of_the_client_is_shown() {
    let authority = Authority::new();
    let directory = std::sync::Arc::new(boltq_tests::harness::Directory::new());
    let identity = authority.issue(directory.path(), "server");
    let client = authority.issue(directory.path(), "client");
    let ca = authority.write(directory.path()).to_str().unwrap().to_owned();
    let options = authority
        .options(ServerOptions::memory(), &identity)
        .set("server.tls.ca_file", ca.as_str())
        .set("server.tls.client_auth", "required")
        .tls(authority.client(Some(&client), &["http/1.1"]));
    let server = Server::start_in(&options, directory).unwrap();
    let environment = [
        ("BOLTQ_CA_FILE", ca.as_str()),
        ("BOLTQ_TLS_CERT", client.cert.to_str().unwrap()),
        ("BOLTQ_TLS_KEY", client.key.to_str().unwrap()),
    ];
    let done = boltq(&server, &["health"], &environment);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(!boltq(&server, &["health"], &environment[..1]).status.success());
}

#[test]
fn a_key_that_was_made_opens_what_it_is_for() {
    let made = Command::new(cli_binary())
        .args(["key", "generate", "-o", "json"])
        .env_clear()
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let keys = json!([{"id": "shop", "hash": made["hash"], "role": "producer"}]);
    let server = Server::start(&ServerOptions::memory().set("security.keys", keys));
    let environment = [("BOLTQ_API_KEY", made["key"].as_str().unwrap())];
    let done = boltq(&server, &["publish", "-topic", "q", "-payload", "x"], &environment);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let refused = boltq(&server, &["queue", "purge", "q"], &environment);
    assert_eq!(
        text(&refused.stderr),
        "error: purging needs a key with the role admin; the key \"shop\" has producer (ROLE_REQUIRED)\n"
    );
}
