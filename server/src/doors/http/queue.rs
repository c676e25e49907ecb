//! `/publish`, `/consume`, `/ack`, `/nack`: messages of queues.
//!
//! A lease belongs to no connection here: it ends when its message is settled, or at its time.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use boltq_core::MessageId;
use boltq_core::limits::FRAME_BYTES_MAX;

use super::bodies::{Ack, ID_REQUIRED, Nack};
use super::message::{Form, Shown};
use super::query::Parameters;
use super::refusal::{Refusal, members, required, whole};
use super::room::{Client, held, hold};
use super::router::{AdminDoor, json};
use crate::doors::body::shortened;
use crate::doors::bounds::{RETRY_DELAY_MAX, WAIT_MAX};
use crate::doors::exchanges::push_queue;
use crate::doors::requests::{Publish, TOPIC_REQUIRED};
use crate::doors::traced;
use crate::service::{ANSWER_BYTES_MAX, Handle, ServiceError, SettleError, Settlement};

/// Longest part of an id that is repeated in an error.
const ECHO_BYTES_MAX: usize = 100;
/// What an answer with messages has: base64 needs a third more than the bytes.
pub(super) const ANSWER_JSON_BYTES_MAX: usize = ANSWER_BYTES_MAX / 3 * 4;

type Answer = Result<Response, Refusal>;

pub(super) async fn publish(State(door): State<AdminDoor>, headers: HeaderMap, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let publish: Publish<'_> = members(&body)?;
    required(&publish.topic, TOPIC_REQUIRED)?;
    let mut batch = door.queues.batch();
    batch.called_in(traced::context(&door.queues, &headers));
    push_queue(&mut batch, &publish)?;
    let id = door.queues.publish(batch).await?.pop().ok_or(ServiceError::Stopped)?;
    Ok(published(id))
}

pub(super) fn published(id: MessageId) -> Response {
    json(StatusCode::OK, format!(r#"{{"status":"published","id":"{id}"}}"#))
}

pub(super) async fn consume(State(door): State<AdminDoor>, client: Client, query: Parameters) -> Answer {
    let queue = query.text("topic");
    required(queue, TOPIC_REQUIRED)?;
    let form = Form::of(&query)?;
    let wait = query.duration("wait", WAIT_MAX)?;
    let consumer = door.queues.detached_consumer();
    let room = || hold(client.as_ref(), ANSWER_JSON_BYTES_MAX);
    let taken = door.queues.consume_with_room(&consumer, queue, 1, None, wait, room);
    let Some((deliveries, room)) = taken.await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let mut body = Vec::new();
    // There is one.
    for delivery in &deliveries {
        let message = Shown {
            queue,
            id: delivery.id,
            attempts: delivery.attempts,
            max_retry: door.queues.max_retry(queue),
            record: &delivery.record,
        };
        form.put(&mut body, message);
    }
    let bytes = body.len();
    Ok(held(json(StatusCode::OK, body), bytes, room))
}

pub(super) async fn ack(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let ack: Ack<'_> = members(&body)?;
    required(&ack.id, ID_REQUIRED)?;
    settle(&door, Settlement::Ack, &ack.id).await?;
    Ok(json(StatusCode::OK, r#"{"status":"acked"}"#))
}

pub(super) async fn nack(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let nack: Nack<'_> = members(&body)?;
    required(&nack.id, ID_REQUIRED)?;
    let how = Settlement::Nack {
        delay: nack.delay_ns.map(delay).transpose()?,
        dead_letter: nack.dead_letter(),
    };
    settle(&door, how, &nack.id).await?;
    Ok(json(StatusCode::OK, r#"{"status":"nacked"}"#))
}

fn delay(ns: i64) -> Result<Duration, Refusal> {
    let delay = u64::try_from(ns).ok().map(Duration::from_nanos);
    let within = delay.filter(|delay| *delay <= RETRY_DELAY_MAX);
    within.ok_or_else(|| {
        let max = RETRY_DELAY_MAX.as_nanos();
        Refusal::bad_request(format!("delay is {ns}; 0 to {max} nanoseconds are allowed"))
    })
}

async fn settle(door: &AdminDoor, how: Settlement, id: &str) -> Result<(), Refusal> {
    let unknown = || {
        let id = shortened(id, ECHO_BYTES_MAX);
        Refusal::Error(StatusCode::NOT_FOUND, format!("message {id} not found in pending"))
    };
    let id = id.parse().map_err(|_| unknown())?;
    let settled = door.queues.settle(how, &[Handle::Id(id)]).await?;
    match settled.into_iter().next() {
        Some(Ok(())) => Ok(()),
        Some(Err(SettleError::NotSettled(error))) => Err(Refusal::of_service(&error)),
        Some(Err(
            SettleError::Malformed | SettleError::NotFound | SettleError::LeaseLost | SettleError::NotScheduled,
        ))
        | None => Err(unknown()),
    }
}
