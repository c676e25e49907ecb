//! A call for the leader of a stream group that another node passed on, or the answer to one.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|data: &[u8]| -> Corpus {
    if boltq_messaging::fuzzing::call(data) {
        Corpus::Keep
    } else {
        Corpus::Reject
    }
});
