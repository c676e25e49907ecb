//! `boltq consume`: leases what is there. The leases outlive the command, so that `boltq ack` can settle them.

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_proto::queue::v1::{AckRequest, ConsumeRequest, Delivery};

use super::settle::Tokens;
use super::{Context, note, wire};
use crate::args::Consume;
use crate::connect::answer;
use crate::error::{CliError, Unsettled};
use crate::printer::Delivered;

pub(super) async fn run(context: &mut Context, consume: &Consume) -> Result<(), CliError> {
    let mut client = context.server.queues();
    let max = consume.max.unwrap_or(1);
    let lease = consume.lease.map(wire).transpose()?;
    let mut wait = consume.wait;
    let mut taken: u64 = 0;
    let mut unsettled = Vec::new();
    while taken < max {
        let wanted = usize::try_from(max - taken)
            .unwrap_or(usize::MAX)
            .min(BATCH_MESSAGES_MAX);
        let request = ConsumeRequest {
            queue: consume.queue.clone(),
            max_messages: u32::try_from(wanted).unwrap_or(u32::MAX),
            wait: wait.map(wire).transpose()?,
            lease,
        };
        let deliveries = answer(client.consume(request), wait).await?.deliveries;
        if deliveries.is_empty() {
            break;
        }
        // Only the first message is waited for.
        wait = None;
        taken += deliveries.len() as u64;
        unsettled.extend(take(context, deliveries, consume.ack).await?);
    }
    if taken == 0 {
        note(format_args!("no message in {}", consume.queue));
    }
    match unsettled.is_empty() {
        true => Ok(()),
        false => Err(CliError::NotSettled(unsettled)),
    }
}

/// Prints, and with `ack` settles what is certainly printed. Returns what could not be settled.
async fn take(context: &mut Context, deliveries: Vec<Delivery>, ack: bool) -> Result<Vec<Unsettled>, CliError> {
    let mut tokens = Tokens::default();
    for delivery in deliveries {
        tokens.insert(&delivery)?;
        context.printer.print(&Delivered::read(delivery)?)?;
    }
    context.printer.flush()?;
    if !ack {
        return Ok(Vec::new());
    }
    let request = AckRequest {
        delivery_tokens: tokens.list(),
        ..AckRequest::default()
    };
    let response = answer(context.server.queues().ack(request), None).await?;
    tokens.unsettled(&response.failures)
}
