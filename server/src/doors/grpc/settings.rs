//! Settings of a queue, between the protos and the service. Their bounds are rules of the service.

use std::time::Duration;

use boltq_proto::queue::v1::{OverflowPolicy, QueueSettings};
use prost_types::FieldMask;
use tonic::Status;

use super::error::invalid;
use crate::service::{QueueOption, QueueOptionSet, QueueOptions};

/// The names of the fields.
const NAMES: [(&str, QueueOption); 12] = [
    ("max_retry", QueueOption::MaxRetry),
    ("retry_backoff", QueueOption::BackoffFirst),
    ("retry_backoff_max", QueueOption::BackoffMax),
    ("ack_timeout", QueueOption::AckTimeout),
    ("default_ttl", QueueOption::DefaultTtl),
    ("max_length", QueueOption::MaxLength),
    ("max_length_bytes", QueueOption::MaxLengthBytes),
    ("overflow", QueueOption::DropOldest),
    ("dead_letter_queue", QueueOption::DeadLetterQueue),
    ("dedup_ttl", QueueOption::DedupTtl),
    ("single_active_consumer", QueueOption::SingleActiveConsumer),
    ("paused", QueueOption::Paused),
];

pub(super) fn read(settings: QueueSettings) -> Result<QueueOptions, Status> {
    Ok(QueueOptions {
        max_retry: settings.max_retry.map(u64::from),
        backoff_first_ms: millis(settings.retry_backoff, "retry_backoff")?,
        backoff_max_ms: millis(settings.retry_backoff_max, "retry_backoff_max")?,
        ack_timeout_ms: millis(settings.ack_timeout, "ack_timeout")?,
        default_ttl_ms: millis(settings.default_ttl, "default_ttl")?,
        max_length: settings.max_length,
        max_length_bytes: settings.max_length_bytes,
        drop_oldest: match OverflowPolicy::try_from(settings.overflow) {
            Ok(OverflowPolicy::Unspecified | OverflowPolicy::Reject) => false,
            Ok(OverflowPolicy::DropOldest) => true,
            Err(_) => {
                return Err(invalid(format!(
                    "overflow {} is not known; 1 (REJECT) and 2 (DROP_OLDEST) are",
                    settings.overflow
                )));
            }
        },
        dead_letter_queue: Some(settings.dead_letter_queue.into())
            .filter(|name: &std::sync::Arc<str>| !name.is_empty()),
        dedup_ttl_ms: millis(settings.dedup_ttl, "dedup_ttl")?,
        single_active_consumer: settings.single_active_consumer,
        paused: settings.paused,
    })
}

/// Which settings a request is about.
pub(super) fn read_mask(mask: Option<&FieldMask>, options: &QueueOptions) -> Result<QueueOptionSet, Status> {
    let Some(mask) = mask.filter(|mask| !mask.paths.is_empty()) else {
        return Ok(options.set());
    };
    let mut which = QueueOptionSet::default();
    for path in &mask.paths {
        let known = NAMES.iter().find(|(name, _)| name == path);
        let (_, option) = known.ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            invalid(format!("update_mask names {path:?}, which is no setting; {names} are"))
        })?;
        which.insert(*option);
    }
    Ok(which)
}

pub(super) fn write(options: &QueueOptions) -> QueueSettings {
    let overflow = if options.drop_oldest {
        OverflowPolicy::DropOldest
    } else {
        OverflowPolicy::Unspecified
    };
    QueueSettings {
        max_retry: options
            .max_retry
            .map(|retries| u32::try_from(retries).unwrap_or(u32::MAX)),
        retry_backoff: duration(options.backoff_first_ms),
        retry_backoff_max: duration(options.backoff_max_ms),
        ack_timeout: duration(options.ack_timeout_ms),
        default_ttl: duration(options.default_ttl_ms),
        max_length: options.max_length,
        max_length_bytes: options.max_length_bytes,
        overflow: overflow.into(),
        dead_letter_queue: options.dead_letter_queue.as_deref().unwrap_or_default().to_owned(),
        dedup_ttl: duration(options.dedup_ttl_ms),
        single_active_consumer: options.single_active_consumer,
        paused: options.paused,
    }
}

fn millis(duration: Option<prost_types::Duration>, what: &str) -> Result<Option<u64>, Status> {
    let Some(duration) = duration else { return Ok(None) };
    let value = Duration::try_from(duration).map_err(|_| invalid(format!("{what} is negative")))?;
    if value.subsec_nanos() % 1_000_000 != 0 {
        return Err(invalid(format!(
            "{what} is {value:?}; only whole milliseconds are allowed"
        )));
    }
    Ok(Some(u64::try_from(value.as_millis()).unwrap_or(u64::MAX)))
}

fn duration(ms: Option<u64>) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(Duration::from_millis(ms?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> QueueOptions {
        QueueOptions {
            max_retry: Some(0),
            backoff_first_ms: Some(0),
            backoff_max_ms: Some(3),
            ack_timeout_ms: Some(4_005),
            default_ttl_ms: Some(5),
            max_length: Some(6),
            max_length_bytes: Some(7),
            drop_oldest: true,
            dead_letter_queue: Some("dead".into()),
            dedup_ttl_ms: Some(9),
            single_active_consumer: true,
            paused: true,
        }
    }

    #[test]
    fn settings_are_read_as_they_were_written() {
        for options in [all(), QueueOptions::default()] {
            assert_eq!(read(write(&options)).unwrap(), options);
        }
    }

    #[test]
    fn every_setting_has_a_name_and_a_mask_names_what_changes() {
        let mask = |paths: &[&str]| FieldMask {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        let names = NAMES.map(|(name, _)| name);
        assert_eq!(
            read_mask(Some(&mask(&names)), &QueueOptions::default()).unwrap(),
            QueueOptionSet::ALL
        );
        assert_eq!(read_mask(None, &all()).unwrap(), QueueOptionSet::ALL);
        let none = read_mask(Some(&mask(&[])), &QueueOptions::default()).unwrap();
        assert_eq!(none, QueueOptionSet::default());
        let one = read_mask(Some(&mask(&["paused"])), &all()).unwrap();
        assert!(one.contains(QueueOption::Paused) && !one.contains(QueueOption::MaxRetry));
        let error = read_mask(Some(&mask(&["settings.paused"])), &all()).unwrap_err();
        assert!(error.message().contains("\"settings.paused\""), "{error}");
    }

    #[test]
    fn what_no_setting_can_be_is_refused_by_name() {
        let negative = QueueSettings {
            ack_timeout: Some(prost_types::Duration { seconds: -1, nanos: 0 }),
            ..QueueSettings::default()
        };
        let fine = QueueSettings {
            default_ttl: Some(prost_types::Duration {
                seconds: 0,
                nanos: 1_500,
            }),
            ..QueueSettings::default()
        };
        let unknown = QueueSettings {
            overflow: 9,
            ..QueueSettings::default()
        };
        for (settings, part) in [
            (negative, "ack_timeout"),
            (fine, "default_ttl"),
            (unknown, "overflow 9"),
        ] {
            let error = read(settings).unwrap_err();
            assert!(error.message().starts_with(part), "{error}");
        }
    }
}
