//! Creating queues with settings of their own, changing these, and deleting queues.

use std::ops::RangeInclusive;

use boltq_core::check_name;
use boltq_queue::{Outcome, QueueOptionSet, QueueOptions, QueueRefusal, command};
use boltq_raft::Proposal;
use bytes::BytesMut;

use super::error::ServiceError;
use super::look::QueueInfo;
use super::queue::Queues;
use super::routed::check_named;
use crate::config::queue_bounds;

/// A setting of a queue: its name, its value, what that may be, and its unit.
type Setting = (&'static str, Option<u64>, RangeInclusive<u64>, &'static str);

fn settings(options: &QueueOptions) -> [Setting; 8] {
    [
        ("max_retry", options.max_retry, queue_bounds::MAX_RETRY, ""),
        (
            "retry_backoff",
            options.backoff_first_ms,
            queue_bounds::RETRY_BACKOFF_MS,
            " ms",
        ),
        (
            "retry_backoff_max",
            options.backoff_max_ms,
            queue_bounds::RETRY_BACKOFF_MAX_MS,
            " ms",
        ),
        (
            "ack_timeout",
            options.ack_timeout_ms,
            queue_bounds::ACK_TIMEOUT_MS,
            " ms",
        ),
        (
            "default_ttl",
            options.default_ttl_ms,
            queue_bounds::DEFAULT_TTL_MS,
            " ms",
        ),
        ("max_length", options.max_length, queue_bounds::MAX_LENGTH, ""),
        (
            "max_length_bytes",
            options.max_length_bytes,
            queue_bounds::MAX_LENGTH_BYTES,
            " bytes",
        ),
        ("dedup_ttl", options.dedup_ttl_ms, queue_bounds::DEDUP_TTL_MS, " ms"),
    ]
}

impl Queues {
    /// Creates a queue, unless there is one with the same settings; and whether it is new.
    ///
    /// # Errors
    /// The name or a setting is not acceptable, there is a queue with other settings, or nothing was done.
    pub async fn create_queue(&self, name: &str, options: &QueueOptions) -> Result<(QueueInfo, bool), ServiceError> {
        check_name(name)?;
        self.check_options(options, options)?;
        let outcome = self.manage(name, options, |out| command::create_queue(out, name, options));
        match outcome.await? {
            Outcome::QueueSet { new, .. } => Ok((self.queue(name)?, new)),
            _ => Err(ServiceError::Stopped),
        }
    }

    /// Changes some settings of a queue to what they are in `options`; one that is not set there is left to the server again.
    ///
    /// # Errors
    /// A setting is not acceptable, there is no such queue, or nothing was done.
    pub async fn update_queue(
        &self,
        name: &str,
        which: QueueOptionSet,
        options: &QueueOptions,
    ) -> Result<QueueInfo, ServiceError> {
        check_name(name)?;
        let there = self.inner.plane.with(|plane| {
            let id = plane.queue(name)?;
            plane.machine().options(id).cloned()
        });
        let changed = there.unwrap_or_default().with(which, options.clone());
        self.check_options(options, &changed)?;
        let outcome = self.manage(name, options, |out| {
            command::change_queue(out, name, which, options);
        });
        outcome.await?;
        self.queue(name)
    }

    /// Deletes a queue with its messages, settings, bindings and idempotency keys; and how many messages these were.
    ///
    /// # Errors
    /// There is no such queue, it has messages and is to be deleted only without, it is the backlog of a subscription, or
    /// nothing was done.
    pub async fn delete_queue(&self, name: &str, only_if_empty: bool) -> Result<u64, ServiceError> {
        let options = QueueOptions::default();
        let outcome = self.manage(name, &options, |out| command::delete_queue(out, name, only_if_empty));
        match outcome.await? {
            Outcome::QueueDeleted(messages) => Ok(messages),
            _ => Err(ServiceError::Stopped),
        }
    }

    /// What is given has to be within its bounds, and what comes of it must not contradict itself.
    fn check_options(&self, given: &QueueOptions, result: &QueueOptions) -> Result<(), ServiceError> {
        for (name, value, allowed, unit) in settings(given) {
            if let Some(value) = value.filter(|value| !allowed.contains(value)) {
                let (min, max) = allowed.into_inner();
                return Err(ServiceError::InvalidArgument {
                    what: format!("{name} is {value}{unit}; {min}{unit} to {max}{unit} are allowed"),
                });
            }
        }
        if let Some(dead_letters) = &given.dead_letter_queue {
            check_named("dead_letter_queue", dead_letters)?;
        }
        let waits = self.inner.settings.of(Some(result));
        if waits.backoff_first_ms > waits.backoff_max_ms {
            return Err(ServiceError::InvalidArgument {
                what: format!(
                    "retry_backoff is {} ms and retry_backoff_max {} ms, where it was not given that of the server; it \
                     cannot be shorter",
                    waits.backoff_first_ms, waits.backoff_max_ms
                ),
            });
        }
        Ok(())
    }

    async fn manage(
        &self,
        name: &str,
        options: &QueueOptions,
        write: impl FnOnce(&mut BytesMut),
    ) -> Result<Outcome, ServiceError> {
        let mut proposal = Proposal::new();
        write(proposal.begin());
        let outcomes = self.confirmed(self.propose(proposal)).await?;
        match outcomes.into_iter().next() {
            Some(Outcome::QueueRefused(refusal)) => Err(refused(name, options, refusal)),
            Some(outcome) => Ok(outcome),
            None => Err(ServiceError::Stopped),
        }
    }
}

fn refused(name: &str, options: &QueueOptions, refusal: QueueRefusal) -> ServiceError {
    let queue = name.to_owned();
    match refusal {
        QueueRefusal::NotFound => super::look::not_found(name),
        QueueRefusal::Exists => ServiceError::QueueExists { queue },
        QueueRefusal::NotEmpty(messages) => ServiceError::QueueNotEmpty { queue, messages },
        QueueRefusal::Backlog { topic, subscription } => ServiceError::QueueIsBacklog {
            queue,
            topic: topic.into(),
            subscription: subscription.into(),
        },
        QueueRefusal::DeadLettersReturn => ServiceError::InvalidArgument {
            what: format!(
                "dead_letter_queue is {:?}; dead letters that go there would come back to {name:?}",
                options.dead_letter_queue.as_deref().unwrap_or_default()
            ),
        },
    }
}

/// How much a queue may hold, for who is told that it is full.
pub(super) fn limits(options: Option<&QueueOptions>) -> String {
    let limits = options.map_or([None, None], |options| {
        let bytes = options.max_length_bytes;
        [
            options.max_length.map(|max| format!("max_length is {max}")),
            bytes.map(|max| format!("max_length_bytes is {max}, a larger message never fits")),
        ]
    });
    limits.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
