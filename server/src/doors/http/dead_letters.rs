//! `/dead-letters`: what there is, purging, and sending back.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use boltq_core::limits::FRAME_BYTES_MAX;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::bodies::{self, Purge, QUEUE_REQUIRED};
use super::query::Parameters;
use super::queues::{not_purged, purged};
use super::refusal::{Refusal, members, required, whole};
use super::router::{AdminDoor, object};
use super::stats::begin_look;
use crate::service::{Redrive, ServiceError};

/// For one call: proxies and clients wait no longer than about half a minute for an answer.
const REDRIVE_MAX: Duration = Duration::from_secs(20);

type Answer = Result<Response, Refusal>;

#[derive(Serialize)]
struct List {
    dead_letters: Vec<DeadLetters>,
    next_page_token: String,
}

#[derive(Serialize)]
struct DeadLetters {
    queue: String,
    name: String,
    ready: u64,
    leased: u64,
}

pub(super) async fn list(State(door): State<AdminDoor>, query: Parameters) -> Answer {
    let page = query.page()?;
    begin_look(&door, &query).await?;
    let (found, more) = door.queues.dead_letters(query.text("prefix"), page.after, page.size);
    let next = found.last().filter(|_| more).map(|last| last.queue.clone());
    let found = found.into_iter().map(|info| DeadLetters {
        queue: info.queue,
        name: info.name,
        ready: info.ready,
        leased: info.leased,
    });
    Ok(object(&List {
        dead_letters: found.collect(),
        next_page_token: next.unwrap_or_default(),
    }))
}

pub(super) async fn purge(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let purge: Purge<'_> = members(&body)?;
    required(&purge.queue, QUEUE_REQUIRED)?;
    let count = door.queues.purge_dead_letters(&purge.queue).await;
    Ok(purged(&purge.queue, count.map_err(|error| not_purged(&error))?))
}

#[derive(Serialize)]
struct Redriven<'a> {
    status: &'static str,
    queue: &'a str,
    redriven_count: u64,
    more: bool,
}

/// Sends back as many as it can in its time, and says whether it was stopped by that.
pub(super) async fn redrive(State(door): State<AdminDoor>, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let asked: bodies::Redrive<'_> = members(&body)?;
    required(&asked.queue, QUEUE_REQUIRED)?;
    let redrive = redrive_of(&asked)?;
    let (tell, mut told) = mpsc::channel(1);
    let redriving = tokio::spawn(async move { door.queues.redrive(&redrive, &tell).await });
    let all = async { while told.recv().await.is_some() {} };
    let more = timeout(REDRIVE_MAX, all).await.is_err();
    // It ends at its next word.
    drop(told);
    let redriven_count = redriving.await.unwrap_or(Err(ServiceError::Stopped))?;
    Ok(object(&Redriven {
        status: "redriven",
        queue: &asked.queue,
        redriven_count,
        more,
    }))
}

fn redrive_of(asked: &bodies::Redrive<'_>) -> Result<Redrive, Refusal> {
    let headers = asked.headers.iter();
    Ok(Redrive {
        queue: asked.queue.clone().into_owned(),
        headers: headers
            .map(|(key, value)| (key.clone().into_owned(), value.clone().into_owned()))
            .collect(),
        max_messages: bound(asked.max_messages, "max_messages")?,
        max_per_second: bound(asked.max_per_second, "max_per_second")?,
    })
}

/// 0 is none.
fn bound<N: TryFrom<i64>>(given: i64, name: &str) -> Result<N, Refusal> {
    N::try_from(given)
        .map_err(|_| Refusal::bad_request(format!("{name} is {given}; 0, for no bound, or more is allowed")))
}
