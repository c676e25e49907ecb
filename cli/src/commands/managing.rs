//! `boltq queue create`, `update`, `delete`, `pause` and `resume`.

use std::time::Duration;

use boltq_proto::queue::v1::{
    CreateQueueRequest, DeleteQueueRequest, OverflowPolicy, Queue, QueueSettings, UpdateQueueRequest,
};
use prost_types::FieldMask;

use super::Context;
use crate::args::{CreateQueue, DeleteQueue, Overflow, Settings, UpdateQueue};
use crate::connect::answer;
use crate::error::CliError;
use crate::printer;

pub(super) async fn create(context: &mut Context, create: CreateQueue) -> Result<(), CliError> {
    let (settings, _) = read(create.settings);
    let request = CreateQueueRequest {
        queue: create.name.queue,
        settings: Some(settings),
    };
    let mut client = context.server.queues();
    let created = answer(client.create_queue(request), None).await?;
    print(context, created.queue)
}

pub(super) async fn update(context: &mut Context, update: UpdateQueue) -> Result<(), CliError> {
    let (settings, mut paths) = read(update.settings);
    paths.extend(update.reset.iter().map(|name| name.replace('-', "_")));
    if paths.is_empty() {
        return Err(CliError::Usage(
            "nothing to change; see `boltq queue update --help`".to_owned(),
        ));
    }
    change(context, update.name.queue, settings, paths).await
}

pub(super) async fn pause(context: &mut Context, queue: String, paused: bool) -> Result<(), CliError> {
    let settings = QueueSettings {
        paused,
        ..QueueSettings::default()
    };
    change(context, queue, settings, vec!["paused".to_owned()]).await
}

async fn change(
    context: &mut Context,
    queue: String,
    settings: QueueSettings,
    paths: Vec<String>,
) -> Result<(), CliError> {
    let request = UpdateQueueRequest {
        queue,
        settings: Some(settings),
        update_mask: Some(FieldMask { paths }),
    };
    let mut client = context.server.queues();
    let updated = answer(client.update_queue(request), None).await?;
    print(context, updated.queue)
}

pub(super) async fn delete(context: &mut Context, delete: DeleteQueue) -> Result<(), CliError> {
    let queue = delete.name.queue;
    let request = DeleteQueueRequest {
        queue: queue.clone(),
        if_empty: delete.if_empty,
    };
    let mut client = context.server.queues();
    let deleted_messages = answer(client.delete_queue(request), None).await?.deleted_messages;
    context.printer.print(&printer::DeletedQueue {
        queue: &queue,
        deleted_messages,
    })?;
    Ok(())
}

fn print(context: &mut Context, queue: Option<Queue>) -> Result<(), CliError> {
    let queue = queue.ok_or_else(|| CliError::BadAnswer("no queue in it".to_owned()))?;
    context.printer.print(&printer::Queue::from(queue))?;
    Ok(())
}

/// The settings, and the names of those that were given.
fn read(given: Settings) -> (QueueSettings, Vec<String>) {
    let is_given = [
        ("max_retry", given.max_retry.is_some()),
        ("retry_backoff", given.retry_backoff.is_some()),
        ("retry_backoff_max", given.retry_backoff_max.is_some()),
        ("ack_timeout", given.ack_timeout.is_some()),
        ("default_ttl", given.default_ttl.is_some()),
        ("max_length", given.max_length.is_some()),
        ("max_length_bytes", given.max_length_bytes.is_some()),
        ("overflow", given.overflow.is_some()),
        ("dead_letter_queue", given.dead_letter_queue.is_some()),
        ("dedup_ttl", given.dedup_ttl.is_some()),
        ("single_active_consumer", given.single_active_consumer.is_some()),
        ("paused", given.paused.is_some()),
    ];
    let duration = |given: Option<Duration>| prost_types::Duration::try_from(given?).ok();
    let overflow = match given.overflow {
        None => OverflowPolicy::Unspecified,
        Some(Overflow::Reject) => OverflowPolicy::Reject,
        Some(Overflow::DropOldest) => OverflowPolicy::DropOldest,
    };
    let settings = QueueSettings {
        max_retry: given.max_retry,
        retry_backoff: duration(given.retry_backoff),
        retry_backoff_max: duration(given.retry_backoff_max),
        ack_timeout: duration(given.ack_timeout),
        default_ttl: duration(given.default_ttl),
        max_length: given.max_length,
        max_length_bytes: given.max_length_bytes,
        overflow: overflow.into(),
        dead_letter_queue: given.dead_letter_queue.unwrap_or_default(),
        dedup_ttl: duration(given.dedup_ttl),
        single_active_consumer: given.single_active_consumer.unwrap_or_default(),
        paused: given.paused.unwrap_or_default(),
    };
    let names = is_given.into_iter().filter(|(_, given)| *given);
    (settings, names.map(|(name, _)| name.to_owned()).collect())
}
