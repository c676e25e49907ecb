//! `/metrics`: how long things took, and what became of traces.

use crate::service::QueueTimings;
use crate::telemetry::Exposition;
use crate::telemetry::trace::TraceCounts;

/// Without traces what is counted of them is 0.
pub(super) fn put(out: &mut Exposition, timings: &QueueTimings, traces: Option<&TraceCounts>) {
    for (via, times) in &timings.publishes {
        out.histogram(
            "boltq_publish_seconds",
            "Publishes with QUORUM, from when they were received until they were answered; those that failed not included.",
            &[("door", via.name())],
            times,
        );
    }
    for (name, help, times) in [
        (
            "boltq_delivery_wait_seconds",
            "Messages from when they were published, or due, until they were first handed to a consumer.",
            &timings.waits,
        ),
        (
            "boltq_lease_seconds",
            "Messages from when a consumer got them until it acknowledged or rejected them, in whole milliseconds.",
            &timings.holds,
        ),
        (
            "boltq_storage_sync_seconds",
            "Syncs of the log to the device.",
            &timings.syncs,
        ),
    ] {
        out.histogram(name, help, &[], times);
    }
    for (name, help, count) in [
        (
            "boltq_traces_exported_total",
            "Spans that the collector of traces has taken.",
            traces.map(|traces| &traces.exported),
        ),
        (
            "boltq_traces_dropped_total",
            "Spans that were given up, because the collector refused them, or did not take them while too many waited.",
            traces.map(|traces| &traces.dropped),
        ),
    ] {
        out.counter(name, help, count.map_or(0, |count| count.get()));
    }
}
