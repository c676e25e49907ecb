//! What queues say of messages that are published without a time to live.
//!
//! A time to live stands in the record of a message, so it is looked up when that is written, without the lock of the plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use boltq_queue::Machine;

/// The default time to live of each queue that has one.
#[derive(Debug)]
pub struct DefaultTtls(BTreeMap<String, i64>);

impl DefaultTtls {
    /// `None` if no queue has one.
    pub(super) fn of(machine: &Machine) -> Option<Arc<Self>> {
        let queues = machine.queues_with_options();
        let ttls = queues.filter_map(|(name, options)| {
            let ns = options.default_ttl_ms?.saturating_mul(1_000_000);
            Some((name.to_owned(), i64::try_from(ns).unwrap_or(i64::MAX)))
        });
        let ttls: BTreeMap<_, _> = ttls.collect();
        (!ttls.is_empty()).then(|| Arc::new(Self(ttls)))
    }

    /// That of a queue, in nanoseconds.
    pub fn get(&self, queue: &str) -> Option<i64> {
        self.0.get(queue).copied()
    }
}
