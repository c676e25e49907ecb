//! `boltq ack`

use boltq_proto::queue::v1::{AckRequest, AckResponse};

use super::{Context, settle};
use crate::args::Ack;
use crate::connect::answer;
use crate::error::CliError;

pub(super) async fn run(context: &mut Context, ack: &Ack) -> Result<(), CliError> {
    let queues = context.server.queues();
    settle::by_id(context, &ack.ids.ids, "acknowledged", async |message_ids| {
        let request = AckRequest {
            message_ids,
            ..AckRequest::default()
        };
        let mut queues = queues.clone();
        let AckResponse { settled, failures } = answer(queues.ack(request), None).await?;
        Ok((settled, failures))
    })
    .await
}
