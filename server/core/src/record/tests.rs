use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;

fn builder(payload: &[u8]) -> RecordBuilder<'_> {
    RecordBuilder {
        json: false,
        priority: 3,
        published_ns: 5,
        expires: None,
        due: None,
        ordering_key: "",
        id: None,
        payload,
    }
}

proptest! {
    #[test]
    fn a_record_comes_back(
        json: bool, priority in 0u8..=9, published_ns: u64, expires: Option<u64>, due: Option<u64>,
        key in ".{0,50}", id: Option<[u8; 16]>, payload: Vec<u8>, headers: Vec<(String, String)>,
    ) {
        let builder = RecordBuilder {
            json, priority, published_ns, expires: expires.map(Millis), due: due.map(Millis), ordering_key: &key,
            id: id.map(MessageId), payload: &payload,
        };
        let mut out = BytesMut::new();
        builder.write(headers.iter().map(|(k, v)| (k.as_str(), v.as_str())), &mut out);
        let bytes = out.freeze();
        let pairs = headers.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        prop_assert_eq!(record_headers(&bytes).unwrap(), pairs.collect::<Vec<_>>());
        let head = RecordHead::read(&bytes).unwrap();
        prop_assert_eq!(head, RecordHead {
            bytes: bytes.len(), priority, published_ns, expires: expires.map(Millis), due: due.map(Millis),
            key: (!key.is_empty()).then(|| KeyHash::of(key.as_bytes())),
        });
        let record = Record::read(&bytes).unwrap();
        let read: Vec<_> = record.headers().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        prop_assert_eq!(read, headers);
        prop_assert_eq!(&record.payload[..], &payload[..]);
        prop_assert_eq!((record.json, record.priority, record.published_ns), (json, priority, published_ns));
        prop_assert_eq!((record.expires, record.due), (expires.map(Millis), due.map(Millis)));
        prop_assert_eq!((record.id, record.ordering_key()), (id.map(MessageId), key.as_str()));
    }

    #[test]
    fn any_bytes_are_read_or_refused_without_panic(bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        let _ = RecordHead::read(&bytes);
        let _ = Record::read(&bytes);
        let _ = record_headers(&bytes);
        let _ = record_origin(&bytes);
    }
}

const ORIGIN_OF_A_COPY: Origin<'static> = Origin {
    id: MessageId(*b"0123456789abcdef"),
    exchange: "orders",
    routing_key: "eu.new",
};

#[test]
fn a_record_says_where_it_comes_from() {
    for (ordering_key, id) in [("", None), ("key", None), ("", Some([7; 16])), ("key", Some([7; 16]))] {
        let mut out = BytesMut::new();
        let id = id.map(MessageId);
        let builder = RecordBuilder {
            ordering_key,
            id,
            ..builder(b"payload")
        };
        builder.write_routed(Some(ORIGIN_OF_A_COPY), [("k", "v")].into_iter(), &mut out);
        let bytes = out.freeze();
        let record = Record::read(&bytes).unwrap();
        assert_eq!((record.ordering_key(), record.id), (ordering_key, id));
        assert_eq!(
            (record.origin(), &record.payload[..]),
            (Some(ORIGIN_OF_A_COPY), &b"payload"[..])
        );
        assert_eq!(record.headers().collect::<Vec<_>>(), [("k", "v")]);
        assert_eq!(record_headers(&bytes).unwrap(), [("k", "v")]);
        assert_eq!(record_origin(&bytes).unwrap(), Some(ORIGIN_OF_A_COPY));
        assert_eq!(RecordHead::read(&bytes).unwrap().bytes, bytes.len());
        for end in 0..bytes.len() {
            assert!(Record::read(&bytes.slice(..end)).is_err(), "{end}");
        }
    }
}

#[test]
fn a_record_that_was_published_to_a_queue_has_no_origin() {
    let mut out = BytesMut::new();
    builder(b"").write(std::iter::empty(), &mut out);
    assert_eq!(record_origin(&out).unwrap(), None);
    assert_eq!(Record::read(&out.freeze()).unwrap().origin(), None);
}

#[test]
fn an_ordering_key_that_no_publisher_can_give_is_refused() {
    let mut out = BytesMut::new();
    let builder = RecordBuilder {
        ordering_key: "k",
        ..builder(b"")
    };
    builder.write(std::iter::empty(), &mut out);
    let key_at = 4 + 3 + 8;
    assert_eq!(out[key_at..], *b"\x01k");
    for (length, key) in [(0, &b""[..]), (201, &[b'k'; 201]), (2, b"\xff\xff"), (2, b"k")] {
        let mut bad = out[..key_at].to_vec();
        bad.push(length);
        bad.extend_from_slice(key);
        let bytes = u32::try_from(bad.len() - 4).unwrap();
        bad[..4].copy_from_slice(&bytes.to_le_bytes());
        assert!(RecordHead::read(&bad).is_err(), "{length}");
        assert!(record_headers(&bad).is_err(), "{length}");
        assert!(Record::read(&bad.into()).is_err(), "{length}");
    }
}

#[test]
fn every_truncation_is_refused() {
    let mut out = BytesMut::new();
    let builder = RecordBuilder {
        ordering_key: "key",
        ..builder(b"payload")
    };
    builder.write([("k", "v")].into_iter(), &mut out);
    let bytes = out.freeze();
    for end in 0..bytes.len() {
        assert!(Record::read(&bytes.slice(..end)).is_err(), "{end}");
    }
}

#[test]
fn a_version_from_the_future_is_refused_by_name() {
    let mut out = BytesMut::new();
    builder(b"").write(std::iter::empty(), &mut out);
    out[4] = 2;
    let error = Record::read(&out.freeze()).unwrap_err();
    assert_eq!(error.to_string(), "record format: 2 is unknown to this version");
}
