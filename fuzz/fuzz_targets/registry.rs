//! The registry of a cluster: snapshots and commands, which come from other nodes.

#![no_main]

use boltq_core::{Applied, Millis, StateMachine};
use boltq_meta::Registry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(registry) = Registry::restore(data) {
        let again = Registry::restore(&registry.snapshot()).expect("what it wrote");
        assert_eq!(again, registry);
    }
    let mut registry = Registry::default();
    if registry.apply(Millis(1), data, 0, &mut Applied::default()).is_err() {
        assert_eq!(registry, Registry::default());
    }
});
