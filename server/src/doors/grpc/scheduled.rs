//! Listing, cancelling and rescheduling messages that are not due.

use std::time::Duration;

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_core::{MessageId, Millis};
use boltq_proto::queue::v1::reschedule_request::Due;
use boltq_proto::queue::v1::{
    CancelScheduledRequest, CancelScheduledResponse, ListScheduledRequest, ListScheduledResponse, RescheduleRequest,
    RescheduleResponse, ScheduledMessage as Scheduled,
};
use bytes::Bytes;
use prost_types::Timestamp;
use tonic::{Response, Status};

use super::convert::{self, Handles, timestamp_ms};
use super::error::invalid;
use crate::service::{Handle, NewDue, Queues, ScheduledAfter, ScheduledMessage};

const PAGE_DEFAULT: usize = 100;
/// The latest due time, in Unix milliseconds: those of messages are shown in nanoseconds of 64 bits.
const DUE_MS_MAX: u64 = u64::MAX / 1_000_000;
/// What the publish of a message may ask for, too.
const DELAY_MAX: Duration = Duration::from_nanos(i64::MAX as u64);

pub(super) async fn list(
    queues: &Queues,
    request: ListScheduledRequest,
) -> Result<Response<ListScheduledResponse>, Status> {
    let max = convert::count(request.page_size, "page_size", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?;
    let after = match request.page_token.as_str() {
        "" => None,
        token => Some(ScheduledAfter::from_token(token).ok_or_else(|| {
            invalid("page_token is not one of this call; take next_page_token of the response before")
        })?),
    };
    let (messages, next) = queues.scheduled(&request.queue, after, max).await?;
    Ok(Response::new(ListScheduledResponse {
        messages: messages.into_iter().map(scheduled).collect(),
        next_page_token: next.map(ScheduledAfter::to_token).unwrap_or_default(),
    }))
}

fn scheduled(message: ScheduledMessage) -> Scheduled {
    Scheduled {
        message_id: Bytes::copy_from_slice(&message.id.0),
        deliver_at: Some(timestamp_ms(message.due)),
        priority: i32::from(message.priority),
    }
}

pub(super) async fn cancel(
    queues: &Queues,
    request: CancelScheduledRequest,
) -> Result<Response<CancelScheduledResponse>, Status> {
    let handles = Handles::read(Vec::new(), request.message_ids)?;
    let ids: Vec<MessageId> = handles
        .handles
        .iter()
        .filter_map(|handle| match handle {
            Handle::Id(id) => Some(*id),
            Handle::Token(_) => None,
        })
        .collect();
    let results = queues.cancel_scheduled(&ids).await?;
    let (cancelled, failures) = handles.answer(&results);
    Ok(Response::new(CancelScheduledResponse { cancelled, failures }))
}

pub(super) async fn reschedule(
    queues: &Queues,
    request: RescheduleRequest,
) -> Result<Response<RescheduleResponse>, Status> {
    let id = <[u8; 16]>::try_from(&request.message_id[..])
        .map_err(|_| invalid(format!("message_id has {} bytes, not 16", request.message_id.len())))?;
    let due = match request.due {
        Some(Due::DeliverAt(at)) => NewDue::At(read_time(&at)?),
        Some(Due::Delay(delay)) => {
            NewDue::After(convert::bounded(Some(delay), "delay", Duration::ZERO, DELAY_MAX)?.unwrap_or_default())
        }
        None => return Err(invalid("deliver_at and delay are missing; set one of them")),
    };
    let due = queues.reschedule(MessageId(id), due).await?;
    Ok(Response::new(RescheduleResponse {
        deliver_at: Some(timestamp_ms(due)),
    }))
}

/// Up to the next millisecond: never early.
fn read_time(at: &Timestamp) -> Result<Millis, Status> {
    let (Ok(seconds), Ok(nanos @ ..1_000_000_000)) = (u64::try_from(at.seconds), u64::try_from(at.nanos)) else {
        return Err(invalid(
            "deliver_at is no time after 1970, or its nanos are not 0 to 999,999,999",
        ));
    };
    let ms = seconds
        .checked_mul(1_000)
        .and_then(|ms| ms.checked_add(nanos.div_ceil(1_000_000)));
    ms.filter(|ms| *ms <= DUE_MS_MAX).map(Millis).ok_or_else(|| {
        invalid("deliver_at is after 2554-07-21T23:34:33.709Z, the latest time that a message can be due")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_and_those_that_are_none_are_refused() {
        let read = |seconds, nanos| read_time(&Timestamp { seconds, nanos }).ok();
        assert_eq!(read(1, 0), Some(Millis(1_000)));
        assert_eq!(read(1, 1), Some(Millis(1_001)));
        assert_eq!(read(1, 999_999_999), Some(Millis(2_000)));
        let last = 18_446_744_073;
        assert_eq!(read(last, 709_000_000), Some(Millis(DUE_MS_MAX)));
        assert_eq!(timestamp_ms(Millis(DUE_MS_MAX)).seconds, last);
        let error = read_time(&Timestamp {
            seconds: last,
            nanos: 709_000_001,
        })
        .unwrap_err();
        assert!(error.message().contains("is after 2554-07-21"), "{error}");
        // The year 10000.
        assert_eq!(read(253_402_300_800, 0), None);
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MAX, 0), (i64::MIN, 0)] {
            assert_eq!(read(seconds, nanos), None, "{seconds} {nanos}");
        }
    }
}
