//! A log that is closed under callers that still write to its directory.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use boltq_log::testing::{HangingFiles, SimFiles};
use boltq_log::{CheckpointError, InstallError, Log};
use bytes::Bytes;

use boltq_core::GroupId;

use crate::common::{Plan, commit, config, eventually, id, names, record};

const GROUP: GroupId = GroupId(1);

/// Closes the log beside, and waits for it so long that a close that does not wait would be over.
fn closing(log: &Log) -> JoinHandle<()> {
    let log = log.clone();
    let closing = thread::spawn(move || log.close());
    let deadline = Instant::now() + Duration::from_millis(300);
    while !closing.is_finished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    closing
}

#[test]
fn the_directory_is_given_back_after_the_checkpoint_that_is_being_written() {
    let files = SimFiles::new();
    let device = HangingFiles::new(Arc::new(files.clone()));
    let log = Log::open(config(), Arc::new(device.clone())).unwrap();
    let group = log.group(GROUP);
    commit(&group, 1, &Plan::place(1, 1, vec![record(b"one")]));
    let capture = group.capture();
    let hanging = device.hang_at("ckp-");
    let writer = {
        let group = group.clone();
        thread::spawn(move || group.write_checkpoint(capture, id(1, 1), b"meta", Bytes::from_static(b"state")))
    };
    eventually("a checkpoint that begins", || hanging.waiting() > 0);

    let closing = closing(&log);
    assert!(
        !closing.is_finished(),
        "the directory is free while a checkpoint is written into it"
    );
    drop(hanging);
    closing.join().unwrap();
    writer.join().unwrap().unwrap();

    let late = group.write_checkpoint(group.capture(), id(1, 1), b"meta", Bytes::new());
    assert!(matches!(late, Err(CheckpointError::Log(_))), "{late:?}");
    let again = Log::open(config(), Arc::new(files)).unwrap().group(GROUP);
    assert_eq!(again.checkpoint().unwrap().state, "state");
}

#[test]
fn what_is_installed_when_the_log_closes_is_left_to_the_next_holder() {
    let source_files = SimFiles::new();
    let source = Log::open(config(), Arc::new(source_files)).unwrap().group(GROUP);
    // Two runs that cannot be joined: the first one is written when the second comes.
    commit(&source, 1, &Plan::place(1, 1, vec![record(b"one")]));
    commit(&source, 2, &Plan::place(2, 1, vec![record(b"two")]));
    source
        .write_checkpoint(source.capture(), id(1, 2), b"meta", Bytes::from_static(b"state"))
        .unwrap();
    let mut export = source.export().unwrap().unwrap();

    let files = SimFiles::new();
    let log = Log::open(config(), Arc::new(files.clone())).unwrap();
    let runs = export.next(usize::MAX).unwrap();
    let mut install = log.group(GROUP).begin_install().unwrap();
    for run in &runs {
        install.add(run).unwrap();
    }
    let before = names(&files);
    assert!(before.iter().any(|name| name.ends_with(".tmp")), "{before:?}");
    log.close();
    // Removing what it had written is not its right any more.
    let late = install.add(&runs[0]);
    assert!(
        matches!(late, Err(InstallError::Checkpoint(CheckpointError::Log(_)))),
        "{late:?}"
    );
    drop(install);
    let tmp = |names: Vec<String>| names.into_iter().filter(|name| name.ends_with(".tmp")).count();
    assert_eq!(tmp(names(&files)), 1);
    let again = Log::open(config(), Arc::new(files.clone())).unwrap();
    assert_eq!(tmp(names(&files)), 0, "the next start removes what was not completed");
    drop(again);
}
