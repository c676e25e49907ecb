//! `/metrics`: what a group has counted since the start of the node.

use boltq_raft::{GroupFigures, Snapshots};

use crate::telemetry::Exposition;

pub(super) fn put(out: &mut Exposition, group: &str, figures: &GroupFigures) {
    let label = ("group", group);
    for (name, help, values) in [
        (
            "boltq_raft_append_seconds",
            "Appends to the log, from the call until they are as durable as the log is set to be.",
            &figures.appends,
        ),
        (
            "boltq_raft_commit_seconds",
            "Entries that this node has proposed, from then until they were committed and applied here.",
            &figures.commits,
        ),
        (
            "boltq_raft_entry_proposals",
            "Proposals in each entry that this node has proposed.",
            &figures.entries,
        ),
    ] {
        out.histogram(name, help, &[label], values);
    }
    for (direction, snapshots) in [("sent", &figures.sent), ("installed", &figures.installed)] {
        put_snapshots(out, &[label, ("direction", direction)], snapshots);
    }
}

fn put_snapshots(out: &mut Exposition, labels: &[(&str, &str)], snapshots: &Snapshots) {
    out.labelled_counter(
        "boltq_raft_snapshots_total",
        "Snapshots to other nodes, and from them, that arrived and were installed.",
        labels,
        snapshots.done,
    );
    out.labelled_counter(
        "boltq_raft_snapshot_failures_total",
        "Snapshots that broke off or were refused; they are tried again.",
        labels,
        snapshots.failed,
    );
    out.labelled_counter(
        "boltq_raft_snapshot_bytes_total",
        "Bytes of snapshots, those that broke off included.",
        labels,
        snapshots.bytes,
    );
    out.labelled_seconds(
        "boltq_raft_snapshot_seconds_total",
        "Time that snapshots took, from the first chunk until they were installed or broke off.",
        labels,
        snapshots.time,
    );
}
