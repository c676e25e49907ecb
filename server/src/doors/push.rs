//! A message of a topic as the binary protocol and the admin port push it.

use super::json::{put_base64, put_number, put_string};
use crate::service::Push;

/// Appends the object; `subscriber` is a member of the binary protocol.
pub(super) fn put(out: &mut Vec<u8>, topic: &str, push: &Push, subscriber: Option<&str>) {
    let record = &push.record;
    out.extend_from_slice(br#"{"id":""#);
    out.extend_from_slice(&push.id.hex());
    out.extend_from_slice(br#"","topic":"#);
    put_string(out, topic);
    out.extend_from_slice(br#","payload":"#);
    if record.json {
        out.extend_from_slice(&record.payload);
    } else {
        put_base64(out, &record.payload);
        out.extend_from_slice(br#","payload_encoding":"base64""#);
    }
    put_headers(out, record.headers());
    out.extend_from_slice(br#","timestamp":"#);
    put_number(out, record.published_ns);
    if let Some(subscriber) = subscriber {
        out.extend_from_slice(br#","subscriber_id":"#);
        put_string(out, subscriber);
    }
    out.push(b'}');
}

/// A member with the headers, left out when there are none.
pub(super) fn put_headers<'h>(out: &mut Vec<u8>, headers: impl Iterator<Item = (&'h str, impl AsRef<str>)>) {
    let mut any = false;
    for (key, value) in headers {
        out.extend_from_slice(if any { b"," } else { br#","headers":{"# });
        any = true;
        put_string(out, key);
        out.push(b':');
        put_string(out, value.as_ref());
    }
    if any {
        out.push(b'}');
    }
}
