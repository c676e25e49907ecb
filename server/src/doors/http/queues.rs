//! `/queues`: what there is, looking without taking, and purging.

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use boltq_core::limits::{BATCH_MESSAGES_MAX, FRAME_BYTES_MAX};
use serde::Serialize;

use super::bodies::{Purge, QUEUE_REQUIRED};
use super::message::{Form, Shown};
use super::query::Parameters;
use super::queue::ANSWER_JSON_BYTES_MAX;
use super::refusal::{Refusal, members, required, whole};
use super::room::{Client, held, hold};
use super::router::{AdminDoor, json, object};
use super::stats::begin_look;
use crate::doors::bounds::PEEK_DEFAULT;
use crate::service::ServiceError;

type Answer = Result<Response, Refusal>;

#[derive(Serialize)]
struct List {
    queues: Vec<Queue>,
    next_page_token: String,
}

#[derive(Serialize)]
struct Queue {
    name: String,
    ready: u64,
    leased: u64,
    delayed: u64,
    dead_letters: u64,
    consumers: u32,
}

pub(super) async fn list(State(door): State<AdminDoor>, query: Parameters) -> Answer {
    let page = query.page()?;
    begin_look(&door, &query).await?;
    let (queues, more) = door.queues.list(query.text("prefix"), page.after, page.size);
    let next = queues.last().filter(|_| more).map(|last| last.name.clone());
    let queues = queues.into_iter().map(|info| Queue {
        name: info.name,
        ready: info.ready,
        leased: info.leased,
        delayed: info.delayed,
        dead_letters: info.dead_letters,
        consumers: info.consumers,
    });
    Ok(object(&List {
        queues: queues.collect(),
        next_page_token: next.unwrap_or_default(),
    }))
}

pub(super) async fn peek(State(door): State<AdminDoor>, client: Client, query: Parameters) -> Answer {
    let queue = query.text("queue");
    required(queue, QUEUE_REQUIRED)?;
    let form = Form::of(&query)?;
    let max = query.count("max_messages", PEEK_DEFAULT, BATCH_MESSAGES_MAX)?;
    begin_look(&door, &query).await?;
    let room = hold(client.as_ref(), ANSWER_JSON_BYTES_MAX).await;
    let peeked = door.queues.peek(queue, max).await?;
    let max_retry = door.queues.max_retry(queue);
    let mut body = br#"{"messages":["#.to_vec();
    for (n, peeked) in peeked.iter().enumerate() {
        if n > 0 {
            body.push(b',');
        }
        let message = Shown {
            queue,
            id: peeked.id,
            attempts: peeked.attempts,
            max_retry,
            record: &peeked.record,
        };
        form.put(&mut body, message);
    }
    body.extend_from_slice(b"]}");
    let bytes = body.len();
    Ok(held(json(StatusCode::OK, body), bytes, room))
}

pub(super) async fn purge(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let purge: Purge<'_> = members(&body)?;
    required(&purge.queue, QUEUE_REQUIRED)?;
    let count = door
        .queues
        .purge(&purge.queue)
        .await
        .map_err(|error| not_purged(&error))?;
    Ok(purged(&purge.queue, count))
}

#[derive(Serialize)]
struct Purged<'a> {
    status: &'static str,
    queue: &'a str,
    purged_count: u64,
}

pub(super) fn purged(queue: &str, count: u64) -> Response {
    object(&Purged {
        status: "purged",
        queue,
        purged_count: count,
    })
}

/// That there is no such queue has always been a failure here, in these words.
pub(super) fn not_purged(error: &ServiceError) -> Refusal {
    let text = match error {
        ServiceError::QueueNotFound { queue } => format!("queue {queue} not found"),
        ServiceError::DeadLettersNotFound { queue } => format!("dead letter queue {queue} not found"),
        other => return Refusal::of_service(other),
    };
    Refusal::Error(StatusCode::INTERNAL_SERVER_ERROR, text)
}
