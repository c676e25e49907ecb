//! `/publish/topic`, `/topics`, and `/subscribe`: messages of a topic as Server-Sent Events.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use boltq_core::limits::FRAME_BYTES_MAX;
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at};

use super::bodies::ID_REQUIRED;
use super::query::Parameters;
use super::queue::published;
use super::refusal::{Refusal, members, required, whole};
use super::router::{AdminDoor, object};
use super::stats::begin_look;
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
    let mut batch = door.queues.routed_batch()?;
    batch.called_in(traced::context(&door.queues, &headers));
    exchanges::push_topic(&mut batch, &publish)?;
    let routed = batch.publish().await?.pop().ok_or(ServiceError::Stopped)??;
    Ok(published(routed.id))
}

#[derive(Serialize)]
struct Topics {
    topics: Vec<Topic>,
    next_page_token: String,
}

#[derive(Serialize)]
struct Topic {
    name: String,
    durable_subscriptions: usize,
    subscribers: u64,
}

pub(super) async fn list(State(door): State<AdminDoor>, query: Parameters) -> Answer {
    let page = query.page()?;
    begin_look(&door, &query).await?;
    let (topics, more) = door.queues.topics(page.after, page.size);
    let next = topics.last().filter(|_| more).map(|last| last.name.clone());
    let topics = topics.into_iter().map(|topic| Topic {
        name: topic.name,
        durable_subscriptions: topic.durable_subscriptions,
        subscribers: topic.subscribers,
    });
    Ok(object(&Topics {
        topics: topics.collect(),
        next_page_token: next.unwrap_or_default(),
    }))
}

/// Whether this asks for a subscription that keeps nothing.
pub(super) fn is_live(uri: &Uri) -> bool {
    Parameters::of(uri).is_ok_and(|query| query.switch("durable") == Ok(false))
}

pub(super) async fn subscribe(State(door): State<AdminDoor>, query: Parameters) -> Answer {
    let (topic, id) = (query.text("topic"), query.text("id"));
    required(topic, TOPIC_REQUIRED)?;
    required(id, ID_REQUIRED)?;
    let new = NewSubscription {
        topic,
        id: Some(id),
        durable: query.switch("durable")?,
        buffer: BUFFER_MESSAGES,
    };
    let subscribed = door.queues.subscribe(new).await?;
    let (out, items) = mpsc::channel(1);
    tokio::spawn(pump(subscribed, || std::future::ready(()), out, |_, item| item));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    let events = events(Taking::new(items), topic.to_owned());
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
