//! `boltq queue scheduled`, `cancel` and `reschedule`.

use boltq_core::MessageId;
use boltq_proto::queue::v1::reschedule_request::Due;
use boltq_proto::queue::v1::{
    CancelScheduledRequest, CancelScheduledResponse, ListScheduledRequest, ListScheduledResponse, RescheduleRequest,
};
use bytes::Bytes;

use super::{Context, note, settle};
use crate::args::{Reschedule, Scheduled};
use crate::connect::answer;
use crate::error::CliError;
use crate::printer::{Id, Rescheduled, Rows, ScheduledMessage};

/// Messages asked for at a time.
const PAGE_MESSAGES: u64 = 1_000;

/// Prints page by page, as there may be millions.
pub(super) async fn list(context: &mut Context, options: Scheduled) -> Result<(), CliError> {
    let mut client = context.server.queues();
    let mut left = options.max.unwrap_or(u64::MAX);
    let mut page_token = String::new();
    let mut first = true;
    loop {
        let request = ListScheduledRequest {
            queue: options.name.queue.clone(),
            page_size: u32::try_from(left.min(PAGE_MESSAGES)).unwrap_or(u32::MAX),
            page_token,
        };
        let ListScheduledResponse {
            messages,
            next_page_token,
        } = answer(client.list_scheduled(request), None).await?;
        left = left.saturating_sub(messages.len() as u64);
        let page: Result<Vec<_>, _> = messages.iter().map(ScheduledMessage::read).collect();
        let page = page?;
        if page.is_empty() && first {
            note("no message waits to be due");
        } else if !page.is_empty() {
            context.printer.print(&Rows(page).show())?;
        }
        first = false;
        if next_page_token.is_empty() || left == 0 {
            return Ok(());
        }
        page_token = next_page_token;
    }
}

pub(super) async fn cancel(context: &mut Context, ids: &[MessageId]) -> Result<(), CliError> {
    let queues = context.server.queues();
    settle::by_id(context, ids, "cancelled", async |message_ids| {
        let mut queues = queues.clone();
        let request = CancelScheduledRequest { message_ids };
        let CancelScheduledResponse { cancelled, failures } = answer(queues.cancel_scheduled(request), None).await?;
        Ok((cancelled, failures))
    })
    .await
}

pub(super) async fn reschedule(context: &mut Context, options: Reschedule) -> Result<(), CliError> {
    let due = match (options.at, options.delay) {
        (Some(at), _) => Some(Due::DeliverAt(at)),
        (None, Some(delay)) => {
            let delay = prost_types::Duration::try_from(delay);
            Some(Due::Delay(delay.unwrap_or(prost_types::Duration {
                seconds: i64::MAX,
                nanos: 0,
            })))
        }
        (None, None) => None,
    };
    let request = RescheduleRequest {
        message_id: Bytes::copy_from_slice(&options.id.0),
        due,
    };
    let mut client = context.server.queues();
    let response = answer(client.reschedule(request), None).await?;
    context.printer.print(&Rescheduled {
        message_id: Id(options.id),
        deliver_at: response.deliver_at.unwrap_or_default().to_string(),
    })?;
    Ok(())
}
