//! `/metrics`: Prometheus text, or a flat JSON object for who asks for JSON.

use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::router::{self, AdminDoor};
use super::{
    cache_metrics, cluster_metrics, group_metrics, publish_metrics, routing_metrics, timing_metrics, tls_metrics,
};
use crate::cluster::{QUEUE_GROUP, group_name};
use crate::service::{KvStats, QueueStats, Stats};
use crate::telemetry::{DoorMetrics, Exposition};

pub(super) async fn metrics(State(door): State<AdminDoor>, headers: HeaderMap) -> Response {
    let surveyed = door.queues.survey();
    let stats = door.queues.stats_of(&surveyed);
    let cache = door.kv.stats().unwrap_or_default();
    let accept = headers.get(ACCEPT).map_or(&b""[..], |value| value.as_bytes());
    if String::from_utf8_lossy(accept).contains("application/json") {
        return router::json(StatusCode::OK, flat(&stats, &cache).to_string());
    }
    let mut exposition = Exposition::default();
    messages(&mut exposition, &stats);
    door.shown.lock().put(&mut exposition, &surveyed);
    timing_metrics::put(&mut exposition, &door.queues.timings(), door.queues.trace_counts());
    publish_metrics::put(&mut exposition, door.queues.publish_counts());
    cache_metrics::put(&mut exposition, &cache);
    routing_metrics::put(
        &mut exposition,
        door.queues.routing_counts(),
        door.queues.told_and_dropped(),
    );
    group_and_storage(&mut exposition, &stats);
    doors(&mut exposition, &door.metrics);
    if let Some(store) = &door.tls {
        tls_metrics::put(&mut exposition, store);
    }
    match door.clustering.status() {
        Some(status) => cluster_metrics::put(&mut exposition, &status),
        None => group_metrics::put(&mut exposition, &group_name(QUEUE_GROUP), &stats.figures),
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], exposition.into_text()).into_response()
}

/// The object has had these thirteen members for long. Without a cache nothing was looked up in it.
fn flat(stats: &Stats, cache: &KvStats) -> serde_json::Value {
    json!({
        "messages_published": stats.totals.published,
        "messages_consumed": stats.consumed,
        "messages_acked": stats.totals.acked,
        "messages_nacked": stats.failed_attempts(),
        "retry_count": stats.totals.nacked,
        "dead_letter_count": stats.totals.dead_lettered,
        "raft_apply_count": stats.group.applied_entries,
        "snapshot_count": stats.group.checkpoints,
        "leader_changes": stats.group.leader_changes,
        "cache_hits": cache.hits,
        "cache_misses": cache.misses,
        "cache_sets": cache.totals.sets,
        "cache_deletes": cache.totals.deletes,
    })
}

fn messages(out: &mut Exposition, stats: &Stats) {
    let totals = &stats.totals;
    out.counter(
        "boltq_messages_published",
        "Messages accepted, on all doors.",
        totals.published,
    );
    out.counter(
        "boltq_messages_consumed",
        "Deliveries from queues since the start of this node.",
        stats.consumed,
    );
    out.counter("boltq_messages_acked", "Messages acknowledged.", totals.acked);
    out.counter(
        "boltq_messages_nacked",
        "Failed attempts: negative acknowledgements and ended leases.",
        stats.failed_attempts(),
    );
    out.counter(
        "boltq_messages_expired",
        "Messages discarded at the end of their time to live.",
        totals.expired,
    );
    out.counter(
        "boltq_messages_purged",
        "Messages removed by a purge or with their queue.",
        totals.purged,
    );
    out.counter(
        "boltq_messages_dropped",
        "Messages removed from full queues to make room.",
        totals.dropped,
    );
    out.counter(
        "boltq_messages_rejected",
        "Messages, or copies of them, that were not stored because a queue was full.",
        totals.rejected,
    );
    out.counter(
        "boltq_retry_count",
        "Failed attempts after which a message was to be tried again.",
        totals.nacked,
    );
    out.counter(
        "boltq_dead_letter_count",
        "Messages moved to a dead-letter queue.",
        totals.dead_lettered,
    );
    let ready = |queues: &[(String, QueueStats)]| queues.iter().map(|(_, queue)| queue.ready).sum();
    out.gauge(
        "boltq_queues",
        "Queues, those of dead letters not included.",
        stats.queues.len() as u64,
    );
    out.gauge(
        "boltq_messages_ready",
        "Messages that wait, dead letters not included.",
        ready(&stats.queues),
    );
    out.gauge("boltq_messages_leased", "Messages that consumers hold.", stats.pending);
    out.gauge(
        "boltq_messages_delayed",
        "Messages that are not yet due.",
        stats.delayed,
    );
    out.gauge(
        "boltq_dead_letters_ready",
        "Dead letters that wait.",
        ready(&stats.dead_letters),
    );
}

fn group_and_storage(out: &mut Exposition, stats: &Stats) {
    let group = &stats.group;
    out.counter(
        "boltq_raft_apply_count",
        "Entries of the log applied since the start.",
        group.applied_entries,
    );
    out.counter(
        "boltq_snapshot_count",
        "Checkpoints written since the start.",
        group.checkpoints,
    );
    out.counter(
        "boltq_leader_changes",
        "Changes of the leader since the start.",
        group.leader_changes,
    );
    out.gauge(
        "boltq_storage_bytes",
        "Bytes of all files of the log, or of memory.",
        stats.storage.bytes,
    );
    let writable = u64::from(stats.storage.writable);
    out.gauge(
        "boltq_storage_writable",
        "0 while the disk is full and publishes are refused.",
        writable,
    );
    out.gauge("boltq_uptime_seconds", "Time since the start.", stats.uptime.as_secs());
}

fn doors(out: &mut Exposition, metrics: &DoorMetrics) {
    let open = "Open connections.";
    for (port, gauge) in [
        ("messaging", &metrics.messaging_connections),
        ("admin", &metrics.admin_connections),
    ] {
        out.labelled_gauge("boltq_connections", open, &[("port", port)], gauge.get());
    }
    for (name, help, counter) in [
        (
            "boltq_forward_total",
            "Requests that were passed on to the leader.",
            &metrics.forwards.sent,
        ),
        (
            "boltq_forward_failed",
            "Requests for the leader that could not be passed on, or were not answered.",
            &metrics.forwards.failed,
        ),
        (
            "boltq_forward_no_leader",
            "Requests for the leader while nobody was known to lead.",
            &metrics.forwards.no_leader,
        ),
    ] {
        out.counter(name, help, counter.get());
    }
    let refused = "Connections closed at once because there were too many.";
    out.counter(
        "boltq_connections_refused_total",
        refused,
        metrics.connections_refused.get(),
    );
    out.counter(
        "boltq_requests_refused_total",
        "Requests refused because unfinished ones would have taken more memory than they may.",
        metrics.requests_refused.get(),
    );
    out.counter(
        "boltq_requests_stalled_total",
        "Requests given up because they made no progress.",
        metrics.requests_stalled.get(),
    );
    let rejected = "Frames of the binary protocol that closed their connection: too long, or before authentication.";
    out.counter("boltq_frames_rejected_total", rejected, metrics.frames_rejected.get());
    out.counter(
        "boltq_authentications_failed_total",
        "Wrong or missing API keys.",
        metrics.authentications_failed.get(),
    );
    out.counter(
        "boltq_authentications_throttled_total",
        "Keys that nobody looked at, as their address had failed too often.",
        metrics.authentications_throttled.get(),
    );
    out.counter(
        "boltq_requests_forbidden_total",
        "Requests for which the role of the key was not enough.",
        metrics.requests_forbidden.get(),
    );
    out.counter(
        "boltq_tls_handshakes_failed_total",
        "TLS handshakes of clients that came to nothing.",
        metrics.handshakes_failed.get(),
    );
}
