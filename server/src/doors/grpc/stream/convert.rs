//! Between the messages of `boltq.stream.v1` and the types of the plane.

use std::time::Duration;

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_messaging::{
    Appended, PartitionInfo, Place, ReadRecord, Records, Retention as Kept, Start as Begin, StreamError, TopicInfo,
};
use boltq_proto::stream::v1::start::At;
use boltq_proto::stream::v1::{NewRecord, Partition, Position, ReadResponse, Record, Retention, Start, Topic};
use prost_types::Timestamp;
use tonic::Status;

use super::super::convert::{Content, content_type_and_headers, timestamp_ms, timestamp_ns};
use super::super::error::invalid;
use crate::service::ANSWER_BYTES_MAX;

/// What a record has on the wire beyond its bytes in the log at most.
const ENVELOPE_BYTES: usize = 128;
/// Records of one answer, in bytes: with their envelopes it has to fit into a message.
pub(super) const PAGE_BYTES_MAX: usize = ANSWER_BYTES_MAX - BATCH_MESSAGES_MAX * ENVELOPE_BYTES;
/// Longer than anybody keeps anything; more cannot be counted in nanoseconds.
const AGE_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A record that is to be appended to a topic.
pub(super) fn new_record<'a>(
    topic: &'a str,
    record: &'a NewRecord,
) -> Result<boltq_messaging::NewRecord<'a>, StreamError> {
    let content = Content::read(&record.payload, &record.content_type, &record.headers);
    let content = content.map_err(StreamError::InvalidArgument)?;
    let place = match record.partition {
        None => Place::Key(&record.key),
        Some(partition) if record.key.is_empty() => Place::Partition(partition),
        Some(_) => {
            return Err(StreamError::InvalidArgument(
                "key and partition are both set; a key says which partition it is".to_owned(),
            ));
        }
    };
    let key = record.idempotency_key.as_str();
    Ok(boltq_messaging::NewRecord {
        topic,
        place,
        json: content.json,
        payload: &record.payload,
        headers: content.headers,
        // Back ends share their keys; users have names.
        idempotency: (!key.is_empty()).then_some(("", key)),
    })
}

pub(super) fn position(appended: &Appended) -> Position {
    Position {
        partition: appended.partition,
        seq: appended.seq.0,
        timestamp: Some(timestamp_ns(appended.timestamp_ns)),
        duplicate: appended.duplicate,
    }
}

/// Where to begin to read.
pub(super) fn start(start: Option<&Start>) -> Result<Begin<'_>, Status> {
    Ok(match start.and_then(|start| start.at.as_ref()) {
        None => Begin::Head,
        Some(At::Seq(seq)) => Begin::Seq(*seq),
        Some(At::Time(time)) => Begin::Time(unix_ns(time)?),
        Some(At::Cursor(reader)) => Begin::Cursor {
            group: &reader.group,
            member: &reader.member,
        },
        Some(At::End(true)) => Begin::End,
        Some(At::End(false)) => {
            return Err(invalid(
                "start.end is false; leave it out to begin with the first record",
            ));
        }
    })
}

fn unix_ns(time: &Timestamp) -> Result<u64, Status> {
    let ns = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    // Whatever was before 1970 was before all records.
    u64::try_from(ns.max(0)).map_err(|_| invalid("start.time is later than any time that can be counted"))
}

pub(super) fn records(records: Records) -> ReadResponse {
    ReadResponse {
        records: records.records.into_iter().map(record).collect(),
        next_seq: records.next.0,
        first_seq: records.first.0,
        end_seq: records.end.0,
    }
}

fn record(read: ReadRecord) -> Record {
    let seq = read.seq.0;
    let Some(content) = read.content else {
        return Record {
            seq,
            redacted: true,
            ..Record::default()
        };
    };
    let record = content.record;
    let headers = record.headers().map(|(key, value)| (key, value.into()));
    let (content_type, headers) = content_type_and_headers(&record, headers);
    Record {
        seq,
        timestamp: Some(timestamp_ns(content.timestamp_ns)),
        key: record.ordering_key().to_owned(),
        payload: record.payload.clone(),
        headers,
        content_type,
        redacted: false,
    }
}

pub(super) fn retention(retention: Retention) -> Result<Kept, Status> {
    let age = match retention.max_age {
        None => Duration::ZERO,
        Some(age) => Duration::try_from(age).map_err(|_| invalid("retention.max_age is negative"))?,
    };
    if age > AGE_MAX {
        return Err(invalid(format!(
            "retention.max_age is {} s; at most {} s are allowed, and 0 is for ever",
            age.as_secs(),
            AGE_MAX.as_secs()
        )));
    }
    let max_age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    if max_age_ms == 0 && !age.is_zero() {
        return Err(invalid("retention.max_age is under a millisecond; 0 is for ever"));
    }
    Ok(Kept {
        max_age_ms,
        max_bytes: retention.max_bytes,
    })
}

pub(super) fn topic(info: &TopicInfo) -> Topic {
    let kept = info.settings.retention;
    let max_age = Duration::from_millis(kept.max_age_ms);
    Topic {
        name: info.name.clone(),
        partitions: info.settings.partitions,
        retention: Some(Retention {
            max_age: (!max_age.is_zero()).then(|| max_age.try_into().unwrap_or_default()),
            max_bytes: kept.max_bytes,
        }),
        created_at: Some(timestamp_ms(info.created)),
        records: info
            .partitions
            .iter()
            .map(|partition| partition.end.0 - partition.first.0)
            .sum(),
        bytes: info.partitions.iter().map(|partition| partition.bytes).sum(),
    }
}

pub(super) fn partition(info: &PartitionInfo) -> Partition {
    Partition {
        partition: info.partition,
        first_seq: info.first.0,
        end_seq: info.end.0,
        bytes: info.bytes,
        last_timestamp: (info.last_timestamp_ns > 0).then(|| timestamp_ns(info.last_timestamp_ns)),
    }
}
