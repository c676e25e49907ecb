//! `/metrics`: topics and exchanges.

use std::sync::atomic::Ordering;

use crate::service::RoutingCounts;
use crate::telemetry::Exposition;

pub(super) fn put(out: &mut Exposition, counts: &RoutingCounts) {
    out.counter(
        "boltq_exchange_unroutable_total",
        "Messages to exchanges that no binding matched, published through this node.",
        counts.unroutable.load(Ordering::Relaxed),
    );
}
