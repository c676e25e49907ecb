//! `/overview`: everything that a dashboard shows at a glance. The names are those that dashboards have always read, PascalCase
//! and `goroutines` included.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::query::Parameters;
use super::refusal::Refusal;
use super::router::{AdminDoor, json};
use super::stats::begin_look;
use super::{cache, flat_metrics};
use crate::doors::json::{put_number, put_string};
use crate::doors::{cluster_status, statistics};
use crate::service::{Overview, overview as look};

pub(super) async fn overview(State(door): State<AdminDoor>, query: Parameters) -> Result<Response, Refusal> {
    // A node that was removed from its cluster shows that it was.
    if query.switch("linearizable")? {
        begin_look(&door, &query).await?;
    }
    let overview = look(&door.queues, &door.kv, &door.clustering);
    let mut body = Vec::new();
    put(&mut body, &overview, door.compaction_threshold_bytes);
    Ok(json(StatusCode::OK, body))
}

fn put(out: &mut Vec<u8>, overview: &Overview, compaction_threshold_bytes: u64) {
    let stats = &overview.stats;
    let number = |out: &mut Vec<u8>, head: &str, value: u64| {
        out.extend_from_slice(head.as_bytes());
        put_number(out, value);
    };
    out.extend_from_slice(br#"{"health":"#);
    put_string(out, overview.health.name());
    out.extend_from_slice(br#","stats":"#);
    statistics::put(out, stats);
    out.extend_from_slice(br#","metrics":{"#);
    flat_metrics::put_counters(out, stats);
    out.extend_from_slice(br#"},"storage":{"mode":"#);
    put_string(out, if stats.storage.disk { "disk" } else { "memory" });
    number(out, r#","size":"#, stats.storage.bytes);
    number(out, r#","compaction_threshold":"#, compaction_threshold_bytes);
    number(out, r#"},"system":{"goroutines":"#, overview.process.tasks);
    number(out, r#","memory":"#, overview.process.resident_bytes);
    number(
        out,
        r#"},"uptime_ms":"#,
        u64::try_from(stats.uptime.as_millis()).unwrap_or(u64::MAX),
    );
    out.extend_from_slice(br#","cluster":"#);
    cluster_status::put(out, overview.cluster.as_ref());
    out.extend_from_slice(br#","cache":"#);
    cache::put_stats(out, overview.cache);
    out.push(b'}');
}
