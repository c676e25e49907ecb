//! The counters that this API has shown for long, as members of one flat object. Names and number are fixed: dashboards read
//! them.

use axum::http::StatusCode;
use axum::response::Response;

use super::router::json;
use crate::doors::json::put_number;
use crate::service::{KvStats, Stats};

/// `/metrics` for who asks for JSON: thirteen numbers. Without a cache nothing was looked up in it.
pub(super) fn answer(stats: &Stats, cache: &KvStats) -> Response {
    let mut body = b"{".to_vec();
    put_counters(&mut body, stats);
    put(
        &mut body,
        [
            (r#","cache_hits":"#, cache.hits),
            (r#","cache_misses":"#, cache.misses),
            (r#","cache_sets":"#, cache.totals.sets),
            (r#","cache_deletes":"#, cache.totals.deletes),
        ],
    );
    body.push(b'}');
    json(StatusCode::OK, body)
}

/// Appends the nine of them that are not about the cache.
pub(super) fn put_counters(out: &mut Vec<u8>, stats: &Stats) {
    put(
        out,
        [
            (r#""messages_published":"#, stats.totals.published),
            (r#","messages_consumed":"#, stats.consumed),
            (r#","messages_acked":"#, stats.totals.acked),
            (r#","messages_nacked":"#, stats.failed_attempts()),
            (r#","retry_count":"#, stats.totals.nacked),
            (r#","dead_letter_count":"#, stats.totals.dead_lettered),
            (r#","raft_apply_count":"#, stats.group.applied_entries),
            (r#","snapshot_count":"#, stats.group.checkpoints),
            (r#","leader_changes":"#, stats.group.leader_changes),
        ],
    );
}

fn put<const COUNT: usize>(out: &mut Vec<u8>, members: [(&str, u64); COUNT]) {
    for (name, value) in members {
        out.extend_from_slice(name.as_bytes());
        put_number(out, value);
    }
}
