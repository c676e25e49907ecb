//! Messages as they lie in the log: what is read can be written again and read as the same.

#![no_main]

use boltq_core::{KeyHash, Record, RecordBuilder, RecordHead, record_headers};
use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let head = RecordHead::read(data);
    let Ok(record) = Record::read(&Bytes::copy_from_slice(data)) else {
        return;
    };
    let head = head.expect("the head of a record that is whole");
    assert!(head.bytes <= data.len() && record.payload.len() < head.bytes);
    assert_eq!(
        (head.priority, head.expires, head.due),
        (record.priority, record.expires, record.due)
    );
    let key = record.ordering_key();
    assert_eq!(head.key, (!key.is_empty()).then(|| KeyHash::of(key.as_bytes())));
    let headers: Vec<_> = record.headers().collect();
    assert_eq!(
        record_headers(data).expect("headers of a record that is whole"),
        headers
    );
    let mut written = BytesMut::new();
    let builder = RecordBuilder {
        json: record.json,
        priority: record.priority,
        published_ns: record.published_ns,
        expires: record.expires,
        due: record.due,
        ordering_key: record.ordering_key(),
        id: record.id,
        payload: &record.payload,
    };
    builder.write_routed(record.origin(), record.headers(), &mut written);
    assert_eq!(Record::read(&written.freeze()), Ok(record));
});
