//! Delayed messages: what ten million of them take, and how late messages come.
//!
//! How late a message is says the message itself: it shows when it was due, and client and server have one clock.

use std::time::{Duration, Instant, SystemTime};

use boltq_proto::queue::v1::subscribe_request::Request as SubscribeKind;
use boltq_proto::queue::v1::{PublishStreamRequest, SubscribeInit, SubscribeRequest};
use boltq_proto::r#type::v1::Message;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::QUEUE;
use super::load::{AbortOnDrop, Failure};
use super::report::{Line, Verdict};
use super::rows::Row;
use super::size::settled_memory;
use super::target::start_broker;
use crate::harness::grpc::{QueueCalls, connect, message};
use crate::harness::{Random, Server, ServerOptions};

const PAYLOAD_BYTES: usize = 32;
const BATCH: u64 = 1_000;
/// Batches that may wait in front of the stream.
const OUTSTANDING: usize = 8;
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// For the messages of a burst to be published before they are due.
const BURST_AHEAD: Duration = Duration::from_secs(8);
const LATE_MESSAGES: u64 = 1_000;
/// Load beside those: so many messages each so often make 20,000 a second.
const LOAD_MESSAGES: usize = 200;
const LOAD_EVERY: Duration = Duration::from_millis(10);

/// How late messages came, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
struct Lateness {
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// All lines; one run, as it takes long.
pub(super) async fn lines(quick: bool) -> Result<Vec<Line>, Failure> {
    let messages = if quick { 100_000 } else { 10_000_000 };
    let mut server = start_broker(&ServerOptions::disk())?;
    let mut random = Random::seeded(1);
    let year_ms = YEAR.as_millis() as u64;
    let started = Instant::now();
    publish(&server, messages, || {
        Duration::from_millis(60_000 + random.within(0..year_ms))
    })
    .await?;
    let publish_rate = messages as f64 / started.elapsed().as_secs_f64();
    let memory = settled_memory(&server).await;
    server.restart();
    let start_s = server.started_in().as_secs_f64();
    let delayed = connect(server.messaging()).await.look(QUEUE).await.delayed;
    if delayed != messages {
        return Err(format!("{messages} messages were delayed, and {delayed} are after the start").into());
    }
    let memory_after = settled_memory(&server).await;
    let over = Duration::from_secs(if quick { 2 } else { 20 });
    let idle = lateness(&server, "late", over).await?;
    let loaded = lateness_under_load(&server, over).await?;
    drop(server);
    let burst = if quick { 20_000 } else { 200_000 };
    let promotion_rate = promote(burst).await?;
    let mb = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
    Ok(vec![
        line(
            "delayed publish, batches of 1,000",
            format!("{publish_rate:.0}/s"),
            "",
            None,
            publish_rate,
        ),
        line(
            "promotion, all due at once",
            format!("{promotion_rate:.0}/s"),
            "",
            None,
            promotion_rate,
        ),
        line(
            "memory (RSS), 10 M over a year",
            mb(memory),
            "< 300 MB",
            Some(memory < 300e6),
            memory,
        ),
        line(
            "the same after a start",
            mb(memory_after),
            "< 300 MB",
            Some(memory_after < 300e6),
            memory_after,
        ),
        line(
            "start with them, after kill -9",
            format!("{:.0} ms", start_s * 1e3),
            "",
            None,
            start_s,
        ),
        late_line("lateness, idle, p50 / p99 / max", idle, 10.0),
        late_line("lateness, 20,000/s published beside", loaded, 100.0),
    ])
}

fn line(work: &'static str, shown: String, target: &str, reached: Option<bool>, value: f64) -> Line {
    let mut line = Line::alone(
        Row::Delayed,
        work,
        shown,
        target.to_owned(),
        reached.unwrap_or(true),
        value,
    );
    if reached.is_none() {
        line.verdict = Verdict::None;
    }
    line
}

fn late_line(work: &'static str, late: Lateness, max_ms: f64) -> Line {
    let Lateness {
        p50_ms,
        p99_ms,
        max_ms: max,
    } = late;
    let shown = format!("{p50_ms:.1} / {p99_ms:.1} / {max:.1} ms");
    let mut line = line(work, shown, &format!("max <= {max_ms} ms"), Some(max <= max_ms), max);
    line.data = serde_json::json!({"lateness": late});
    line
}

/// Publishes that many messages, each with a delay of its own, as fast as it goes.
async fn publish(server: &Server, messages: u64, mut delay: impl FnMut() -> Duration) -> Result<(), Failure> {
    let (requests, receiver) = mpsc::channel(OUTSTANDING);
    let mut client = connect(server.messaging()).await;
    let mut answers = client.publish_stream(ReceiverStream::new(receiver)).await?.into_inner();
    let answered = tokio::spawn(async move {
        let mut stored = 0;
        while let Some(answer) = answers.message().await? {
            stored += answer.message_ids.len() as u64;
        }
        Ok::<_, tonic::Status>(stored)
    });
    for _ in 0..messages / BATCH {
        let delayed = || Message {
            delay: delay().try_into().ok(),
            ..message(vec![b'x'; PAYLOAD_BYTES])
        };
        let request = PublishStreamRequest {
            queue: QUEUE.to_owned(),
            messages: std::iter::repeat_with(delayed).take(BATCH as usize).collect(),
            ..PublishStreamRequest::default()
        };
        requests.send(request).await?;
    }
    drop(requests);
    let stored = answered.await??;
    if stored != messages {
        return Err(format!("{stored} of {messages} messages were stored").into());
    }
    Ok(())
}

/// Ready messages a second when many are due at the same time.
async fn promote(messages: u64) -> Result<f64, Failure> {
    let server = start_broker(&ServerOptions::disk())?;
    let due = Instant::now() + BURST_AHEAD;
    publish(&server, messages, || due.saturating_duration_since(Instant::now())).await?;
    let mut client = connect(server.messaging()).await;
    if Instant::now() >= due {
        return Err("the messages were due before all of them were published".into());
    }
    tokio::time::sleep_until(due.into()).await;
    while client.look(QUEUE).await.delayed > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(messages as f64 / due.elapsed().as_secs_f64())
}

async fn lateness_under_load(server: &Server, over: Duration) -> Result<Lateness, Failure> {
    let (requests, receiver) = mpsc::channel(OUTSTANDING);
    let mut client = connect(server.messaging()).await;
    let mut answers = client.publish_stream(ReceiverStream::new(receiver)).await?.into_inner();
    let reading = tokio::spawn(async move { while let Ok(Some(_)) = answers.message().await {} });
    let writing = tokio::spawn(async move {
        let mut every = tokio::time::interval(LOAD_EVERY);
        for number in 0_u64.. {
            every.tick().await;
            let request = PublishStreamRequest {
                queue: format!("load-{}", number % 4),
                messages: vec![message(vec![b'x'; super::PAYLOAD_BYTES]); LOAD_MESSAGES],
                ..PublishStreamRequest::default()
            };
            if requests.send(request).await.is_err() {
                return;
            }
        }
    });
    let _guards = [AbortOnDrop(reading.abort_handle()), AbortOnDrop(writing.abort_handle())];
    // Not the queue of the idle server: what was delivered there is not settled, and comes again.
    lateness(server, "late-loaded", over).await
}

/// Of messages that are due at random times, with a subscriber that waits for them.
async fn lateness(server: &Server, queue: &str, over: Duration) -> Result<Lateness, Failure> {
    let mut client = connect(server.messaging()).await;
    let init = SubscribeInit {
        queue: queue.to_owned(),
        max_in_flight: u32::try_from(2 * LATE_MESSAGES)?,
        ..SubscribeInit::default()
    };
    let init = SubscribeRequest {
        request: Some(SubscribeKind::Init(init)),
    };
    let requests = tokio_stream::once(init).chain(tokio_stream::pending());
    let mut responses = client.subscribe(requests).await?.into_inner();
    let mut random = Random::seeded(2);
    for _ in 0..LATE_MESSAGES {
        // Not at once: publishing all of them takes a moment, too.
        let ms = 500 + random.within(0..over.as_millis() as u64);
        let delayed = Message {
            delay: Duration::from_millis(ms).try_into().ok(),
            ..message(vec![b'x'; PAYLOAD_BYTES])
        };
        client.put(queue, delayed).await;
    }
    let mut late: Vec<f64> = Vec::new();
    while (late.len() as u64) < LATE_MESSAGES {
        let response = responses.message().await?.ok_or("the server ended the stream")?;
        let now = SystemTime::now();
        for delivery in response.deliveries {
            let due = SystemTime::try_from(delivery.deliver_at.ok_or("a message that was not delayed")?)?;
            let since = now
                .duration_since(due)
                .map_err(|_| "a message came before it was due")?;
            late.push(since.as_secs_f64() * 1e3);
        }
    }
    late.sort_by(f64::total_cmp);
    let at = |quantile: f64| late[((late.len() - 1) as f64 * quantile) as usize];
    Ok(Lateness {
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        max_ms: at(1.0),
    })
}
