//! Damaged files (weakness A8): what was synced is never given up in silence.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use boltq_tests::harness::binary::{BinaryClient, command, frame};
use boltq_tests::harness::{Random, Server, ServerOptions};
use serde_json::json;

const MESSAGES: u64 = 2_000;

fn options() -> ServerOptions {
    ServerOptions::disk().set("storage.wal_file_bytes", 256 * 1024)
}

/// A killed server with a backlog of several files.
fn filled() -> Server {
    let mut server = Server::start(&options());
    let mut client = BinaryClient::connect(server.messaging());
    let filler = "x".repeat(400);
    for hundred in 0..MESSAGES / 100 {
        let requests: Vec<Vec<u8>> = (0..100)
            .map(|number| json!({"topic": "q", "payload": [hundred * 100 + number, filler]}).to_string())
            .map(|body| frame(command::PUBLISH, body.as_bytes()))
            .collect();
        client.send_bytes(&requests.concat()).unwrap();
        for _ in 0..100 {
            client.receive().unwrap().ok();
        }
    }
    server.kill();
    server
}

/// The files of the log that hold messages, oldest first.
fn wal_files(server: &Server) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![server.directory().data()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                directories.push(path);
            } else if name.starts_with("wal-")
                && std::fs::read(&path)
                    .unwrap()
                    .windows(8)
                    .any(|bytes| bytes == b"xxxxxxxx")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn flip_bit(path: &PathBuf, offset: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

#[test]
fn a_flipped_bit_in_the_middle_stops_the_start_and_is_named_by_file_and_offset() {
    let mut random = Random::from_environment("a_flipped_bit");
    for _ in 0..3 {
        let server = filled();
        let files = wal_files(&server);
        assert!(files.len() >= 3, "{files:?}");
        let victim = &files[files.len() / 2];
        let content = std::fs::read(victim).unwrap();
        // In the payload of a message, which nothing but the checksum protects.
        let payloads: Vec<usize> = (0..content.len() - 8)
            .filter(|at| content[*at..*at + 8] == *b"xxxxxxxx")
            .collect();
        let offset = payloads[random.within(0..payloads.len() as u64) as usize] as u64;
        flip_bit(victim, offset);
        let refused = Server::start_in(&options(), server.directory().clone()).expect_err("a start on damaged data");
        let status = refused.status.expect("it ends by itself");
        assert!(
            !status.success() && !refused.log.contains("panicked"),
            "{status}\n{}",
            refused.log
        );
        let name = victim.file_name().unwrap().to_string_lossy();
        assert!(refused.log.contains(&*name), "the log names {name}:\n{}", refused.log);
        assert!(refused.log.contains("offset"), "and the offset:\n{}", refused.log);
        // The damage is repaired by hand: nothing was made worse by the attempt.
        flip_bit(victim, offset);
        let repaired = Server::start_in(&options(), server.directory().clone()).expect("a start on repaired data");
        assert_eq!(
            BinaryClient::connect(repaired.messaging()).stats()["Queues"]["q"],
            MESSAGES
        );
    }
}

#[test]
fn a_missing_file_in_the_middle_stops_the_start() {
    let server = filled();
    let files = wal_files(&server);
    std::fs::remove_file(&files[files.len() / 2]).unwrap();
    let refused = Server::start_in(&options(), server.directory().clone()).expect_err("a start with a hole");
    assert!(!refused.status.expect("it ends by itself").success());
    assert!(!refused.log.contains("panicked"), "{}", refused.log);
}

/// A write that the end of the machine cut short. The kernel keeps what a killed process wrote, so the tear is made here.
#[test]
fn a_torn_last_write_is_cut_off() {
    let mut server = filled();
    let files = wal_files(&server);
    let last = files.last().unwrap();
    let content = std::fs::read(last).unwrap();
    let end = content.iter().rposition(|byte| *byte != 0).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(last).unwrap();
    // Half a header of a frame that never came.
    file.write_all_at(&[0x42; 5], end as u64 + 64).unwrap();
    server.restart();
    let mut client = BinaryClient::connect(server.messaging());
    assert_eq!(client.stats()["Queues"]["q"], MESSAGES);
    client.publish("q", &json!("goes on"));
    server.restart();
    assert_eq!(
        BinaryClient::connect(server.messaging()).stats()["Queues"]["q"],
        MESSAGES + 1
    );
}

/// As when a volume is not mounted: the node lived before, and must not go on as if it had not.
#[tokio::test]
async fn a_log_that_is_gone_while_the_identity_is_there_is_refused() {
    let server = Server::start(&ServerOptions::disk());
    let directory = Arc::clone(server.directory());
    drop(server);
    std::fs::remove_dir_all(directory.data().join("queue")).unwrap();
    let refusal = Server::start_in(&ServerOptions::disk(), Arc::clone(&directory))
        .map(|_| ())
        .unwrap_err();
    assert!(refusal.to_string().contains("queue"), "{refusal}");
    assert!(!directory.data().join("queue").exists(), "nothing is created");
}
