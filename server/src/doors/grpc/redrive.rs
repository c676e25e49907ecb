//! Sending dead letters back, and telling how far it is.

use boltq_proto::queue::v1::{RedriveDeadLettersRequest, RedriveDeadLettersResponse};
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tonic::Status;

use super::queue::Answers;
use crate::service::{Queues, Redrive, ServiceError};

/// A client that does not read stops it, and one that is gone ends it.
pub(super) fn answers(queues: Queues, request: RedriveDeadLettersRequest) -> Answers<RedriveDeadLettersResponse> {
    let redrive = Redrive {
        queue: request.queue,
        headers: request.headers.into_iter().collect(),
        max_messages: request.max_messages,
        max_per_second: request.max_per_second,
    };
    let (tell, told) = mpsc::channel(1);
    let redriving = tokio::spawn(async move { queues.redrive(&redrive, &tell).await });
    let so_far = stream::unfold(told, |mut told| async { Some((told.recv().await?, told)) });
    let end = stream::once(async { redriving.await.unwrap_or(Err(ServiceError::Stopped)) });
    Box::pin(so_far.map(Ok).chain(end).map(|redriven| {
        let redriven = redriven.map_err(Status::from)?;
        Ok(RedriveDeadLettersResponse { redriven })
    }))
}
