//! `/publish/topic`, and `/subscribe`: messages of a topic as Server-Sent Events.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use boltq_core::limits::FRAME_BYTES_MAX;
use futures_util::{Stream, StreamExt, stream};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at};

use super::refusal::{Refusal, members, required, whole};
use super::router::{AdminDoor, json};
use crate::doors::exchanges;
use crate::doors::pump::{Taking, pump};
use crate::doors::push;
use crate::doors::requests::{Publish, TOPIC_REQUIRED};
use crate::doors::traced;
use crate::service::{NewSubscription, Pushes, ServiceError};

/// Messages that may wait for a subscriber.
const BUFFER_MESSAGES: usize = 256;
/// Keeps proxies from closing a connection on which nothing happens.
const PING_EVERY: Duration = Duration::from_secs(15);

type Answer = Result<Response, Refusal>;

pub(super) async fn publish(State(door): State<AdminDoor>, headers: HeaderMap, body: Body) -> Answer {
    let body = whole(body, FRAME_BYTES_MAX).await?;
    let publish: Publish<'_> = members(&body)?;
    required(&publish.topic, TOPIC_REQUIRED)?;
    let refusal = |error: ServiceError| Refusal::of_service(&error);
    let mut batch = door.queues.routed_batch().map_err(refusal)?;
    batch.called_in(traced::context(&door.queues, &headers));
    exchanges::push_topic(&mut batch, &publish).map_err(refusal)?;
    let answers = batch.publish().await.map_err(refusal)?;
    let routed = answers.into_iter().next().unwrap_or(Err(ServiceError::Stopped));
    let id = routed.map_err(refusal)?.id;
    Ok(json(StatusCode::OK, format!(r#"{{"status":"published","id":"{id}"}}"#)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Subscribe {
    topic: String,
    id: String,
    durable: String,
}

impl Subscribe {
    pub(super) fn is_durable(&self) -> bool {
        matches!(self.durable.as_str(), "true" | "1")
    }
}

pub(super) async fn subscribe(State(door): State<AdminDoor>, Query(subscribe): Query<Subscribe>) -> Answer {
    required(&subscribe.topic, TOPIC_REQUIRED)?;
    required(&subscribe.id, "id is required")?;
    let new = NewSubscription {
        topic: &subscribe.topic,
        id: Some(&subscribe.id),
        durable: subscribe.is_durable(),
        buffer: BUFFER_MESSAGES,
    };
    let subscribed = door.queues.subscribe(new).await;
    let subscribed = subscribed.map_err(|error| Refusal::of_service(&error))?;
    let (out, items) = mpsc::channel(1);
    tokio::spawn(pump(subscribed, || std::future::ready(()), out, |_, item| item));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    let events = events(Taking::new(items), subscribe.topic);
    Ok((headers, Body::from_stream(events)).into_response())
}

/// Ends with the subscription.
fn events(taking: Taking<()>, topic: String) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> {
    let batches = taking
        .map(move |item| item.ok().map(|pushes| encoded(&topic, &pushes)))
        .chain(stream::once(std::future::ready(None)));
    let every = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    let pings = stream::unfold(every, |mut every| async move {
        every.tick().await;
        Some((Some(Bytes::from_static(b": ping\n\n")), every))
    });
    // Pings never end; what ends is the subscription.
    let both = stream::select(batches, pings);
    both.take_while(|event| std::future::ready(event.is_some()))
        .filter_map(|event| std::future::ready(event.map(Ok)))
}

fn encoded(topic: &str, pushes: &Pushes) -> Bytes {
    let mut out = Vec::new();
    for message in &pushes.messages {
        let at = out.len();
        out.extend_from_slice(b"data: ");
        push::put(&mut out, topic, message, None);
        keep_on_one_line(&mut out, at);
        out.extend_from_slice(b"\n\n");
    }
    out.into()
}

/// Between its tokens JSON may have line breaks, which would end the event; in strings they are escaped.
fn keep_on_one_line(out: &mut [u8], from: usize) {
    let breaks = out[from..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r'));
    breaks.for_each(|byte| *byte = b' ');
}
