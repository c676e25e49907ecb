//! Handing messages out: leasing, reading, and leaving out what has expired.
//!
//! When a message expires stands in its record, so nobody knows before it is read. Normally the messages at the head of a
//! queue live, and a call leases as many as it wants. Where they do not, it looks ahead in batches, has what is over removed
//! in the background, and answers as soon as it has found something or has looked for [`WALK_MAX`]; then
//! [`super::expiry`] goes on by itself.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boltq_core::limits::{BATCH_MESSAGES_MAX, FRAME_BYTES_MAX};
use boltq_core::{IdSalt, Record, Seq, StreamId};
use boltq_log::{GroupLog, ReadError, ReadMode};
use boltq_queue::{ConsumerId, Leased, QueueId};
use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::error::ServiceError;
use super::expiry::{Expired, LOOK_AHEAD_MESSAGES};
use super::queue::{Consumer, Delivery, Queues};
use super::token::DeliveryToken;
use crate::clock;
use crate::plane::Attachment;

/// Records in one answer, in bytes: clients refuse messages over 4 MiB unless they are told otherwise.
pub const ANSWER_BYTES_MAX: usize = FRAME_BYTES_MAX - 64 * 1024;
/// What a delivery has beyond its record at most: token, id, times, and the framing of its members.
const ANSWER_ENVELOPE_BYTES: usize = 128;

/// Expired messages that one call walks past before it answers that there is nothing.
const WALK_MESSAGES_MAX: usize = 20_000;
/// Time that it takes for that.
const WALK_MAX: Duration = Duration::from_millis(100);

impl Queues {
    /// Leases up to `max` messages, which takes `wait` at most; nothing is an empty list. The queue is created if it
    /// does not exist.
    ///
    /// # Errors
    /// The name is not acceptable, this node does not lead, or the messages cannot be read.
    pub async fn consume(
        &self,
        consumer: &Consumer,
        queue: &str,
        max: usize,
        lease: Option<Duration>,
        wait: Duration,
    ) -> Result<Vec<Delivery>, ServiceError> {
        let room = || std::future::ready(());
        let taken = self.consume_with_room(consumer, queue, max, lease, wait, room).await?;
        Ok(taken.map(|(deliveries, ())| deliveries).unwrap_or_default())
    }

    /// As [`Queues::consume`], and waits for `room` before each attempt: no message leaves its place before there is some
    /// for an answer of [`ANSWER_BYTES_MAX`]. Nothing: there were no messages.
    ///
    /// # Errors
    /// As [`Queues::consume`].
    pub async fn consume_with_room<R, F: Future<Output = R>>(
        &self,
        consumer: &Consumer,
        queue: &str,
        max: usize,
        lease: Option<Duration>,
        wait: Duration,
        room: impl Fn() -> F,
    ) -> Result<Option<(Vec<Delivery>, R)>, ServiceError> {
        let attachment = self.attach(queue).await?;
        if wait.is_zero() {
            let room = room().await;
            let deliveries = self.take(consumer, &attachment, max, lease).await?;
            return Ok((!deliveries.is_empty()).then_some((deliveries, room)));
        }
        let waiting = self.next_deliveries(consumer, &attachment, max, lease, room);
        match tokio::time::timeout(wait, waiting).await {
            // Nothing came, for whatever reason.
            Err(_) | Ok(Err(ServiceError::Stopped)) => Ok(None),
            Ok(taken) => taken.map(Some),
        }
    }

    /// Waits until there is something to lease, and for `room` before each look.
    ///
    /// # Errors
    /// As [`Queues::consume`], and [`ServiceError::Stopped`] when the node stops before anything has come.
    pub async fn next_deliveries<R, F: Future<Output = R>>(
        &self,
        consumer: &Consumer,
        attachment: &Attachment,
        max: usize,
        lease: Option<Duration>,
        room: impl Fn() -> F,
    ) -> Result<(Vec<Delivery>, R), ServiceError> {
        loop {
            // Registered before looking, so that what becomes ready in between is not missed.
            let ready = attachment.waiters.ready.notified();
            let room = room().await;
            let deliveries = self.take(consumer, attachment, max, lease).await?;
            if !deliveries.is_empty() {
                return Ok((deliveries, room));
            }
            drop(room);
            if attachment.waiters.is_closed() {
                return Err(ServiceError::QueueDeleted);
            }
            tokio::select! {
                biased;
                () = ready => {}
                () = self.inner.stop.cancelled() => return Err(ServiceError::Stopped),
            }
        }
    }

    /// Leases what is ready now, leaving out what has expired.
    async fn take(
        &self,
        consumer: &Consumer,
        attachment: &Attachment,
        max: usize,
        lease: Option<Duration>,
    ) -> Result<Vec<Delivery>, ServiceError> {
        let (plane, queue) = (&self.inner.plane, attachment.queue);
        if !plane.is_leading() {
            return Err(self.not_leader());
        }
        let lease_ms = lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
        let max = max.min(BATCH_MESSAGES_MAX);
        let until = Instant::now() + WALK_MAX;
        let mut look = Look {
            consumer: consumer.id,
            queue,
            messages: max,
            deliver: max,
            lease_ms,
        };
        let (mut walked, mut expiring) = (0, Vec::new());
        let begun_ns = self.look_begins();
        loop {
            let found = self.look(look).await?;
            if found.looked == 0 {
                // What is over may have kept others from their turn: those with the same ordering key.
                if expiring.is_empty() || !gone(&mut expiring, until).await? {
                    break;
                }
                continue;
            }
            walked += found.looked;
            let expiry = self.start_expiry(found.expired, until).await;
            if !found.deliveries.is_empty() {
                self.confirm_lease(&found.deliveries).await?;
                // Nobody has to wait until what is over is gone.
                let delivered = found.deliveries.len() as u64;
                plane.consumed.fetch_add(delivered, Ordering::Relaxed);
                attachment
                    .waiters
                    .counts
                    .delivered
                    .fetch_add(delivered, Ordering::Relaxed);
                self.count_waits(&found.deliveries, found.read);
                if let Some(begun_ns) = begun_ns {
                    self.trace_deliveries(queue, &found.deliveries, begun_ns);
                }
                return Ok(found.deliveries);
            }
            expiring.extend(expiry);
            if walked >= WALK_MESSAGES_MAX || Instant::now() >= until {
                self.inner.expiry.sweep_later(queue);
                break;
            }
            look.messages = LOOK_AHEAD_MESSAGES;
        }
        // So that who looks at the figures after this answer sees none of what was walked past.
        gone(&mut expiring, until).await?;
        Ok(Vec::new())
    }

    /// Gives messages back if it is not certain that this node leads. It may have been paused, and others may have had them
    /// since.
    pub(super) async fn confirm_lease(&self, deliveries: &[Delivery]) -> Result<(), ServiceError> {
        let inner = &self.inner;
        if inner.group.holds_lease() || inner.group.confirm_lease().await {
            return Ok(());
        }
        inner.plane.with(|plane| {
            let now = inner.plane.now();
            for delivery in deliveries {
                plane.release(delivery.token.place, now);
            }
        });
        Err(self.not_leader())
    }

    /// Leases and reads the next messages of a queue; what is neither delivered nor expired goes back at once.
    pub(super) async fn look(&self, look: Look) -> Result<Found<'_>, ServiceError> {
        let plane = &self.inner.plane;
        let mut held = Held {
            queues: self,
            leased: self.lease_next(look).await,
        };
        let records = self.records(&held.leased).await?;
        let salt = self.salt()?;
        // Not before it was read: reading may have taken longer than the message had to live.
        let read_at = (plane.sources().clock)();
        let now = read_at.millis();
        let mut found = Found {
            read: read_at,
            looked: held.leased.len(),
            lives: false,
            deliveries: Vec::new(),
            expired: Expired(Held {
                queues: self,
                leased: Vec::new(),
            }),
        };
        let mut noted = Vec::new();
        let mut back = Vec::new();
        let mut read = records.into_iter();
        let mut unread = None;
        for leased in std::mem::take(&mut held.leased) {
            let next = if unread.is_none() { read.next() } else { None };
            let record = match next.map(|bytes| Record::read(&bytes)) {
                Some(Ok(mut record)) => {
                    // It may have been rescheduled.
                    record.due = leased.due.or(record.due);
                    // Its queue may say what it does not.
                    record.expires = leased.expires.or(record.expires);
                    record
                }
                Some(Err(error)) => {
                    unread = Some(ServiceError::Storage {
                        what: format!("record at {:?}: {error}", leased.place),
                    });
                    back.push(leased);
                    continue;
                }
                None => {
                    back.push(leased);
                    continue;
                }
            };
            if record.expired(now) {
                found.expired.0.leased.push(leased);
                continue;
            }
            found.lives = true;
            if found.deliveries.len() == look.deliver {
                back.push(leased);
                continue;
            }
            if record.expires.is_some() || record.id.is_some() {
                noted.push((leased.place, record.expires, record.id));
            }
            found.deliveries.push(delivery(leased, record, salt));
        }
        if !noted.is_empty() {
            plane.with(|plane| {
                for (place, expires, id) in noted {
                    plane.note(place, expires, id);
                }
            });
        }
        held.leased = back;
        match unread {
            // An error only when it comes first: what stands before it can be delivered.
            Some(error) if !found.lives && found.expired.0.leased.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    async fn lease_next(&self, look: Look) -> Vec<Leased> {
        let plane = &self.inner.plane;
        let mut leased = Vec::new();
        let (now, queue) = (plane.now(), look.queue);
        let more = loop {
            let more = plane.with(|plane| {
                let of_queue = || plane.settings(queue).ack_timeout_ms;
                let lease_ms = look.lease_ms.unwrap_or_else(of_queue);
                plane.lease(queue, look.consumer, look.messages, lease_ms, now, &mut leased)
            });
            if !more || !leased.is_empty() {
                break more;
            }
            tokio::task::yield_now().await;
        };
        if more || leased.len() == look.messages {
            // There may be more, and one wake-up came for all of it.
            plane.wake(&[queue]);
        }
        leased
    }

    async fn records(&self, leased: &[Leased]) -> Result<Vec<Bytes>, ServiceError> {
        let places: Vec<_> = leased
            .iter()
            .map(|leased| (leased.place.stream, leased.place.seq))
            .collect();
        self.read_answer(places).await
    }

    /// Reads the first of these records, as many as fit into one answer and can be read; at least one.
    pub(super) async fn read_answer(&self, places: Vec<(StreamId, Seq)>) -> Result<Vec<Bytes>, ServiceError> {
        let envelopes = places.len().min(BATCH_MESSAGES_MAX) * ANSWER_ENVELOPE_BYTES;
        self.read_first(places, ANSWER_BYTES_MAX - envelopes).await
    }

    /// Reads the first of these records, about as many as have `bytes_max`, from memory if they are there, else on a thread
    /// that may block. Fewer if one cannot be read; an error if that is the first one.
    pub(super) async fn read_first(
        &self,
        places: Vec<(StreamId, Seq)>,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>, ServiceError> {
        let log = self.inner.plane.log().clone();
        let failed = |error: ReadError| ServiceError::Storage {
            what: error.to_string(),
        };
        let read = move |log: &GroupLog, mode| {
            let mut records = Vec::new();
            let whole = log.read_first(&places, bytes_max, mode, &mut records)?;
            Ok::<_, ReadError>(whole.then_some(records))
        };
        if let Some(records) = read(&log, ReadMode::Cached).map_err(failed)? {
            return Ok(records);
        }
        let records = boltq_raft::blocking(move || read(&log, ReadMode::Disk))
            .await
            .map_err(|_| ServiceError::Stopped)?;
        Ok(records.map_err(failed)?.unwrap_or_default())
    }
}

/// Waits until messages that are over are gone; false if that took too long.
async fn gone(expiring: &mut Vec<JoinHandle<Result<(), ServiceError>>>, until: Instant) -> Result<bool, ServiceError> {
    for expiry in expiring.drain(..) {
        match tokio::time::timeout_at(until, expiry).await {
            Ok(expired) => expired.unwrap_or(Err(ServiceError::Stopped))?,
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// What to look at, and for whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) consumer: ConsumerId,
    pub(super) queue: QueueId,
    /// That are looked at.
    pub(super) messages: usize,
    /// That are delivered, of those that live.
    pub(super) deliver: usize,
    /// `None`: as the queue or the server says.
    pub(super) lease_ms: Option<u64>,
}

/// What was there.
pub(super) struct Found<'a> {
    /// When the records had been read.
    pub(super) read: clock::Instant,
    /// Messages that were leased for looking.
    pub(super) looked: usize,
    /// Whether one of them lives.
    pub(super) lives: bool,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) expired: Expired<'a>,
}

/// A message as its consumer gets it.
fn delivery(leased: Leased, record: Record, salt: IdSalt) -> Delivery {
    let Leased {
        place, lease, attempts, ..
    } = leased;
    Delivery {
        token: DeliveryToken { place, lease },
        id: record.id.unwrap_or_else(|| salt.id(place.stream, place.seq)),
        attempts,
        record,
    }
}

/// Leases that nobody was told of; given back when this is dropped.
pub(super) struct Held<'a> {
    pub(super) queues: &'a Queues,
    pub(super) leased: Vec<Leased>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.leased.is_empty() {
            let now = self.queues.inner.plane.now();
            self.queues.inner.plane.with(|plane| {
                for leased in &self.leased {
                    plane.release(leased.place, now);
                }
            });
        }
    }
}
