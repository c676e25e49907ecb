//! The end of a certificate: any bytes are read or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../server/src/tls/expiry.rs"]
mod expiry;

fuzz_target!(|data: &[u8]| {
    expiry::expiry(data);
});
