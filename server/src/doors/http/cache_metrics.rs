//! `/metrics`: the cache.

use crate::service::KvStats;
use crate::telemetry::Exposition;

/// Without a cache all of it is 0.
pub(super) fn put(out: &mut Exposition, stats: &KvStats) {
    let totals = &stats.totals;
    out.gauge("boltq_cache_keys", "Keys of the cache that have a value.", stats.keys);
    out.gauge(
        "boltq_cache_bytes",
        "Bytes of keys and values in the cache, those included that are over and not removed yet.",
        stats.bytes,
    );
    for (name, help, value) in [
        (
            "boltq_cache_hits",
            "Reads on this node that found a value, since its start.",
            stats.hits,
        ),
        (
            "boltq_cache_misses",
            "Reads on this node that found none, since its start.",
            stats.misses,
        ),
        ("boltq_cache_sets", "Keys set or incremented.", totals.sets),
        ("boltq_cache_deletes", "Keys deleted, one by one.", totals.deletes),
        (
            "boltq_cache_expired",
            "Keys removed because their time was over.",
            totals.expired,
        ),
        (
            "boltq_cache_evicted",
            "Keys removed because there were more than cache.max_keys.",
            totals.evicted,
        ),
    ] {
        out.counter(name, help, value);
    }
}
