//! `boltq queue …`

use boltq_proto::queue::v1::{
    GetQueueRequest, ListQueuesRequest, ListQueuesResponse, PeekRequest, PurgeDeadLettersRequest, PurgeQueueRequest,
    RedriveDeadLettersRequest,
};

use super::{Context, managing, note};
use crate::args::{Current, Queue, QueueName, Redrive};
use crate::connect::answer;
use crate::error::CliError;
use crate::printer::{self, Delivered, Purged, Queues, Redriven};
use crate::progress::{self, Progress};

/// Queues asked for at a time.
const PAGE_QUEUES: u32 = 1_000;

pub(super) async fn run(context: &mut Context, queue: Queue) -> Result<(), CliError> {
    match queue {
        Queue::List { prefix, current } => list(context, &prefix, current).await,
        Queue::Get { name, current } => {
            let request = GetQueueRequest {
                queue: name.queue,
                linearizable: current.linearizable,
            };
            get(context, request).await
        }
        Queue::Peek { name, max, current } => {
            let request = PeekRequest {
                queue: name.queue,
                max_messages: max,
                linearizable: current.linearizable,
            };
            peek(context, request).await
        }
        Queue::Create(new) => managing::create(context, new).await,
        Queue::Update(update) => managing::update(context, update).await,
        Queue::Delete(delete) => managing::delete(context, delete).await,
        Queue::Pause(QueueName { queue }) => managing::pause(context, queue, true).await,
        Queue::Resume(QueueName { queue }) => managing::pause(context, queue, false).await,
        Queue::Purge(QueueName { queue }) => purge(context, queue).await,
        Queue::PurgeDeadLetters(QueueName { queue }) => purge_dead_letters(context, queue).await,
        Queue::Redrive(options) => redrive(context, options).await,
    }
}

async fn list(context: &mut Context, prefix: &str, current: Current) -> Result<(), CliError> {
    let mut client = context.server.queues();
    let mut queues = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListQueuesRequest {
            page_size: PAGE_QUEUES,
            page_token,
            prefix: prefix.to_owned(),
            linearizable: current.linearizable,
        };
        let ListQueuesResponse {
            queues: page,
            next_page_token,
        } = answer(client.list_queues(request), None).await?;
        queues.extend(page.into_iter().map(printer::Queue::from));
        if next_page_token.is_empty() {
            break;
        }
        page_token = next_page_token;
    }
    if queues.is_empty() {
        note("no queues");
    }
    context.printer.print(&Queues(queues))?;
    Ok(())
}

async fn get(context: &mut Context, request: GetQueueRequest) -> Result<(), CliError> {
    let mut client = context.server.queues();
    let response = answer(client.get_queue(request), None).await?;
    let queue = response
        .queue
        .ok_or_else(|| CliError::BadAnswer("no queue in it".to_owned()))?;
    context.printer.print(&printer::Queue::from(queue))?;
    Ok(())
}

async fn peek(context: &mut Context, request: PeekRequest) -> Result<(), CliError> {
    let mut client = context.server.queues();
    let response = answer(client.peek(request), None).await?;
    if response.deliveries.is_empty() {
        note("no message is ready");
    }
    for delivery in response.deliveries {
        context.printer.print(&Delivered::read(delivery)?)?;
    }
    Ok(())
}

async fn purge(context: &mut Context, queue: String) -> Result<(), CliError> {
    let mut client = context.server.queues();
    let request = PurgeQueueRequest { queue: queue.clone() };
    let purged = progress::during(&format!("purging {queue}"), answer(client.purge_queue(request), None))
        .await?
        .purged;
    context.printer.print(&Purged {
        what: "message",
        queue: &queue,
        purged,
    })?;
    Ok(())
}

async fn purge_dead_letters(context: &mut Context, queue: String) -> Result<(), CliError> {
    let mut client = context.server.queues();
    let request = PurgeDeadLettersRequest { queue: queue.clone() };
    let purged = progress::during(
        &format!("purging the dead letters of {queue}"),
        answer(client.purge_dead_letters(request), None),
    )
    .await?
    .purged;
    context.printer.print(&Purged {
        what: "dead letter",
        queue: &queue,
        purged,
    })?;
    Ok(())
}

/// What went back is told even if it ended early.
async fn redrive(context: &mut Context, options: Redrive) -> Result<(), CliError> {
    let Redrive {
        name,
        headers,
        max,
        rate,
    } = options;
    let queue = name.queue;
    let request = RedriveDeadLettersRequest {
        queue: queue.clone(),
        headers: headers.into_iter().collect(),
        max_messages: max.unwrap_or_default(),
        max_per_second: rate.unwrap_or_default(),
    };
    let mut client = context.server.queues();
    let mut answers = answer(client.redrive_dead_letters(request), None).await?;
    let mut redriven = 0;
    let mut progress = Progress::new();
    let end = loop {
        match answers.message().await {
            Ok(Some(answer)) => {
                redriven = answer.redriven;
                progress.show(|| format!("sent {redriven} dead letters back to {queue}"));
            }
            Ok(None) => break Ok(()),
            Err(status) => break Err(CliError::from(status)),
        }
    };
    drop(progress);
    if end.is_ok() || redriven > 0 {
        context.printer.print(&Redriven {
            queue: &queue,
            redriven,
        })?;
    }
    end
}
