//! `/metrics`: topics and exchanges.

use std::sync::atomic::Ordering;

use crate::service::RoutingCounts;
use crate::telemetry::Exposition;

pub(super) fn put(out: &mut Exposition, counts: &RoutingCounts, (told, dropped): (u64, u64)) {
    out.counter(
        "boltq_exchange_unroutable_total",
        "Messages to exchanges that no binding matched, published through this node.",
        counts.unroutable.load(Ordering::Relaxed),
    );
    out.counter(
        "boltq_topic_messages_delivered_total",
        "Messages put before live subscribers of topics on this node.",
        told,
    );
    out.counter(
        "boltq_topic_messages_dropped_total",
        "Messages that a live subscriber of a topic on this node did not get, because it was too slow.",
        dropped,
    );
}
