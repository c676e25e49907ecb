//! `boltq nack`

use boltq_proto::queue::v1::{NackRequest, NackResponse};

use super::{Context, settle, wire};
use crate::args::Nack;
use crate::connect::answer;
use crate::error::CliError;

pub(super) async fn run(context: &mut Context, nack: &Nack) -> Result<(), CliError> {
    let queues = context.server.queues();
    let delay = nack.delay.map(wire).transpose()?;
    let verb = if nack.dead_letter { "dead-lettered" } else { "returned" };
    settle::by_id(context, &nack.ids.ids, verb, async |message_ids| {
        let request = NackRequest {
            message_ids,
            delay,
            dead_letter: nack.dead_letter,
            ..NackRequest::default()
        };
        let mut queues = queues.clone();
        let NackResponse { settled, failures } = answer(queues.nack(request), None).await?;
        Ok((settled, failures))
    })
    .await
}
