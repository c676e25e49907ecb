//! `/metrics`: publishes that were not simply stored.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ack_level::AckLevel;
use crate::service::PublishCounts;
use crate::telemetry::Exposition;

pub(super) fn put(out: &mut Exposition, counts: &PublishCounts) {
    let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
    for level in [AckLevel::Leader, AckLevel::None] {
        let Some(early) = counts.early(level) else { continue };
        let label = [("ack_level", level.name())];
        out.labelled_counter(
            "boltq_publishes_answered_early_total",
            "Messages whose publish was answered at LEADER or NONE by this node.",
            &label,
            number(&early.answered),
        );
        out.labelled_counter(
            "boltq_publishes_lost_total",
            "Messages that were answered at LEADER or NONE and then not stored, or of which this node does not know.",
            &label,
            number(&early.lost),
        );
    }
    out.counter(
        "boltq_publishes_refused_replicas_total",
        "Messages refused because fewer voters answered than cluster.min_in_sync asks for.",
        number(&counts.too_few_replicas),
    );
    out.counter(
        "boltq_publishes_not_in_sync_total",
        "Messages that a majority has and fewer voters confirmed in time than cluster.min_in_sync asks for.",
        number(&counts.not_in_sync),
    );
}
