//! `boltq bench`: loads a queue and says how fast that went.
//!
//! The load itself is `boltq-load`, which `make bench` uses too. What is here is what a person needs around it: a queue that
//! nobody else uses, progress, an end by ctrl-C that still has a result, and a queue that is as empty as it was.

use std::pin::pin;
use std::time::{Duration, Instant};

use boltq_load::grpc::{Connecting, GrpcDriver};
use boltq_load::{Batch, Counts, Load, LoadError, Plan};
use boltq_proto::queue::v1::{AckLevel, DeleteQueueRequest, GetQueueRequest, PurgeQueueRequest, Queue};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic::{Code, Status};

use super::follow::interrupted;
use super::{Context, note};
use crate::args::Bench;
use crate::connect::{ConnectError, answer};
use crate::error::CliError;
use crate::printer::{Measured, per_second};
use crate::progress::{self, Progress};

/// Batches of each publisher that consumers may be behind.
const BACKLOG_BATCHES: u64 = 64;
/// Messages of each consumer that may be delivered and not settled.
const IN_FLIGHT: u32 = 8_192;
const QUEUE_NOT_FOUND: &str = "QUEUE_NOT_FOUND";
const PROGRESS: Duration = Duration::from_millis(200);
/// Leases end with their streams, and the server notices that soon.
const EMPTY_WITHIN: Duration = Duration::from_secs(10);

pub(super) async fn run(context: &mut Context, bench: &Bench) -> Result<(), CliError> {
    bench.check().map_err(CliError::Usage)?;
    let found = look(context, &bench.queue).await?;
    if let Some(queue) = found.as_ref().filter(|_| !bench.force) {
        refuse_queue_in_use(queue)?;
    }
    let mut interrupted = pin!(interrupted()?);
    let mut load = Load::start(&driver(context, bench), &plan(bench))
        .await
        .map_err(failed)?;
    let end = tokio::select! {
        biased;
        () = &mut interrupted => Ok(()),
        end = measured(&mut load, bench) => end,
    };
    let report = load.report().map_err(failed)?;
    let failures = report.failed;
    progress::during("waiting for the last answers", load.stop()).await;
    context.printer.print(&Measured {
        queue: &bench.queue,
        report,
    })?;
    context.printer.flush()?;
    if !bench.keep && !bench.force {
        let emptied = progress::during("removing what is left", remove(context, &bench.queue, found.is_none())).await;
        // What the load failed with comes first.
        end?;
        emptied?;
    } else {
        end?;
    }
    match failures {
        0 => Ok(()),
        failed => Err(CliError::LoadFailed { failed }),
    }
}

fn driver(context: &Context, bench: &Bench) -> GrpcDriver {
    let server = context.server.clone();
    let metadata = server.metadata();
    let connect = move || -> Connecting {
        let server = server.clone();
        Box::pin(async move { Ok(server.another_connection().await?) })
    };
    let level = bench.ack_level.map_or(AckLevel::Quorum, AckLevel::from);
    GrpcDriver::new(Box::new(connect), metadata).with_ack_level(level)
}

fn plan(bench: &Bench) -> Plan {
    let messages = bench.batch_messages();
    Plan {
        batch: Batch {
            queue: bench.queue.clone(),
            messages: messages as usize,
            payload_bytes: bench.size as usize,
        },
        publishers: bench.publishers as usize,
        consumers: bench.consumers as usize,
        outstanding: bench.outstanding as usize,
        rate: bench.rate.map(f64::from),
        backlog: Some(BACKLOG_BATCHES * u64::from(messages) * u64::from(bench.publishers)),
        in_flight: IN_FLIGHT,
    }
}

/// Warms up and measures, with progress; ends early only if the load fails.
async fn measured(load: &mut Load, bench: &Bench) -> Result<(), CliError> {
    phase(load, bench.warm_up, "warming up").await?;
    load.measure();
    phase(load, bench.duration, "measuring").await
}

async fn phase(load: &mut Load, length: Duration, name: &str) -> Result<(), CliError> {
    let started = Instant::now();
    let mut end = pin!(sleep(length));
    let mut progress = Progress::new();
    let mut ticks = interval(PROGRESS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let before = load.counts();
    loop {
        tokio::select! {
            biased;
            () = &mut end => return Ok(()),
            error = load.failed() => return Err(failed(error)),
            _ = ticks.tick() => {}
        }
        let counts = load.counts();
        progress.show(|| line(name, started.elapsed(), length, before, counts));
    }
}

fn line(name: &str, elapsed: Duration, length: Duration, before: Counts, now: Counts) -> String {
    let seconds = elapsed.as_secs_f64().max(f64::EPSILON);
    let rate = |before: u64, now: u64| per_second(now.saturating_sub(before) as f64 / seconds);
    format!(
        "{name} {:.0} of {:.0} s: {} published, {} settled, {} failed",
        elapsed.as_secs_f64(),
        length.as_secs_f64(),
        rate(before.published, now.published),
        rate(before.settled, now.settled),
        now.failed
    )
}

/// Messages of others would be measured, and lost.
fn refuse_queue_in_use(queue: &Queue) -> Result<(), CliError> {
    let messages = waiting(queue);
    if messages > 0 || queue.consumers > 0 {
        return Err(CliError::QueueInUse {
            queue: queue.name.clone(),
            messages,
            consumers: queue.consumers,
        });
    }
    Ok(())
}

fn waiting(queue: &Queue) -> u64 {
    queue.ready + queue.leased + queue.delayed
}

/// `None`: there is no such queue.
async fn look(context: &Context, queue: &str) -> Result<Option<Queue>, CliError> {
    let request = GetQueueRequest {
        queue: queue.to_owned(),
        linearizable: true,
    };
    let mut client = context.server.queues();
    let found = answer(
        async {
            match client.get_queue(request).await {
                Err(status) if status.code() == Code::NotFound => Ok(tonic::Response::new(None)),
                found => found.map(|found| found.map(|found| found.queue)),
            }
        },
        None,
    );
    found.await
}

/// Deletes the queue if the load made it, and purges it otherwise.
async fn remove(context: &Context, queue: &str, made: bool) -> Result<(), CliError> {
    if !made {
        return empty(context, queue).await;
    }
    let request = DeleteQueueRequest {
        queue: queue.to_owned(),
        if_empty: false,
    };
    match answer(context.server.queues().delete_queue(request), None).await {
        // A load that was interrupted at once made none.
        Err(CliError::Refused(refusal)) if refusal.is(QUEUE_NOT_FOUND) => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// Purges until nothing is left.
async fn empty(context: &Context, queue: &str) -> Result<(), CliError> {
    const LOOK: Duration = Duration::from_millis(100);
    let started = Instant::now();
    loop {
        let request = PurgeQueueRequest {
            queue: queue.to_owned(),
        };
        answer(context.server.queues().purge_queue(request), None).await?;
        let left = look(context, queue).await?.map_or(0, |queue| waiting(&queue));
        if left == 0 {
            return Ok(());
        }
        if started.elapsed() > EMPTY_WITHIN {
            note(format_args!(
                "{left} messages are still held by somebody; remove them with `boltq queue purge {queue}`"
            ));
            return Ok(());
        }
        sleep(LOOK).await;
    }
}

fn failed(error: LoadError) -> CliError {
    let error = match error.downcast::<Status>() {
        Ok(status) => return CliError::from(*status),
        Err(error) => error,
    };
    match error.downcast::<ConnectError>() {
        Ok(error) => CliError::Connect(*error),
        Err(error) => CliError::Lost { why: error.to_string() },
    }
}
