//! `/metrics` of a server that speaks TLS.

use std::time::SystemTime;

use crate::telemetry::Exposition;
use crate::tls::TlsStore;

pub(super) fn put(out: &mut Exposition, store: &TlsStore) {
    let since_1970 = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
    if let Some(expires) = store.expires().and_then(since_1970) {
        out.gauge(
            "boltq_tls_certificate_expires_seconds",
            "When the certificate of server.tls ends, in seconds since 1970.",
            expires.as_secs(),
        );
    }
    out.gauge(
        "boltq_tls_files_refused",
        "1 while the files of server.tls cannot be used and older ones are.",
        u64::from(store.is_refusing()),
    );
}
