//! `boltq.queue.v1.QueueService`.

use std::pin::Pin;

use boltq_core::MessageId;
use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_proto::queue::v1::queue_service_server::QueueService;
use boltq_proto::queue::v1::{
    AckRequest, AckResponse, ConsumeRequest, ConsumeResponse, ExtendLeaseRequest, ExtendLeaseResponse, GetQueueRequest,
    GetQueueResponse, ListQueuesRequest, ListQueuesResponse, NackRequest, NackResponse, PeekRequest, PeekResponse,
    PublishFailure, PublishRequest, PublishResponse, PublishStreamRequest, PublishStreamResponse,
    PurgeDeadLettersRequest, PurgeDeadLettersResponse, PurgeQueueRequest, PurgeQueueResponse, Queue, SubscribeRequest,
    SubscribeResponse,
};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use tonic::{Request, Response, Status, Streaming};

use super::convert::{self, Handles};
use super::error::invalid;
use super::subscribe;
use crate::service::{QueueInfo, Queues, ServiceError, Settlement};

/// Requests of one publish stream that may be on their way at once. Beyond it, and when the budget of the group is used
/// up, the server stops reading, and the flow control of HTTP/2 slows the publisher down.
const PUBLISHES_IN_FLIGHT_MAX: usize = 256;

const PEEK_DEFAULT: usize = 10;
const PAGE_DEFAULT: usize = 100;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(super) struct QueueDoor {
    queues: Queues,
}

impl QueueDoor {
    pub(super) fn new(queues: Queues) -> Self {
        Self { queues }
    }
}

#[tonic::async_trait]
impl QueueService for QueueDoor {
    async fn publish(&self, request: Request<PublishRequest>) -> Result<Response<PublishResponse>, Status> {
        let request = request.into_inner();
        let message = request.message.ok_or_else(|| invalid("message is missing"))?;
        let mut batch = self.queues.batch();
        convert::push(&mut batch, &request.queue, &message)?;
        let ids = self.queues.publish(batch).await?;
        let id = ids.first().ok_or(ServiceError::Stopped)?;
        Ok(Response::new(PublishResponse {
            message_id: Bytes::copy_from_slice(&id.0),
        }))
    }

    type PublishStreamStream = Answers<PublishStreamResponse>;

    async fn publish_stream(
        &self,
        request: Request<Streaming<PublishStreamRequest>>,
    ) -> Result<Response<Self::PublishStreamStream>, Status> {
        let queues = self.queues.clone();
        let mut batches = Batches {
            queues: queues.clone(),
            queue: String::new(),
            batch: 0,
        };
        let (stopping, stopped) = (self.queues.clone(), self.queues.clone());
        let requests = request
            .into_inner()
            .take_until(async move { stopping.stopping().await });
        let encoded = requests.map(move |request| batches.encode(request?));
        let answers = encoded.map(move |encoded| {
            let queues = queues.clone();
            async move { encoded?.publish(&queues).await }
        });
        // What was taken is answered; then the publisher is told to go elsewhere.
        let end = stream::once(async move { stopped.is_stopping().then(|| Err(ServiceError::Stopped.into())) });
        let answers = answers
            .buffered(PUBLISHES_IN_FLIGHT_MAX)
            .chain(end.filter_map(std::future::ready));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn consume(&self, request: Request<ConsumeRequest>) -> Result<Response<ConsumeResponse>, Status> {
        let request = request.into_inner();
        let max = convert::count(request.max_messages, "max_messages", 1, BATCH_MESSAGES_MAX)?;
        let (lease, wait) = (convert::lease(request.lease)?, convert::wait(request.wait)?);
        let consumer = self.queues.detached_consumer();
        let deliveries = self.queues.consume(&consumer, &request.queue, max, lease, wait).await?;
        Ok(Response::new(ConsumeResponse {
            deliveries: deliveries.iter().map(convert::delivery).collect(),
        }))
    }

    type SubscribeStream = Answers<SubscribeResponse>;

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let answers = subscribe::open(self.queues.clone(), request.into_inner()).await?;
        Ok(Response::new(Box::pin(answers)))
    }

    async fn ack(&self, request: Request<AckRequest>) -> Result<Response<AckResponse>, Status> {
        let request = request.into_inner();
        let handles = Handles::read(request.delivery_tokens, request.message_ids)?;
        let results = self.queues.settle(Settlement::Ack, &handles.handles).await?;
        let (settled, failures) = handles.answer(&results);
        Ok(Response::new(AckResponse { settled, failures }))
    }

    async fn nack(&self, request: Request<NackRequest>) -> Result<Response<NackResponse>, Status> {
        let request = request.into_inner();
        let how = Settlement::Nack {
            delay: convert::delay(request.delay)?,
            dead_letter: request.dead_letter,
        };
        let handles = Handles::read(request.delivery_tokens, request.message_ids)?;
        let results = self.queues.settle(how, &handles.handles).await?;
        let (settled, failures) = handles.answer(&results);
        Ok(Response::new(NackResponse { settled, failures }))
    }

    async fn extend_lease(
        &self,
        request: Request<ExtendLeaseRequest>,
    ) -> Result<Response<ExtendLeaseResponse>, Status> {
        let request = request.into_inner();
        let lease = convert::lease(request.lease)?.ok_or_else(|| invalid("lease is missing"))?;
        let handles = Handles::read(request.delivery_tokens, Vec::new())?;
        let results = self.queues.extend(&handles.handles, lease)?;
        let (extended, failures) = handles.answer(&results);
        Ok(Response::new(ExtendLeaseResponse { extended, failures }))
    }

    async fn peek(&self, request: Request<PeekRequest>) -> Result<Response<PeekResponse>, Status> {
        let request = request.into_inner();
        let max = convert::count(request.max_messages, "max_messages", PEEK_DEFAULT, BATCH_MESSAGES_MAX)?;
        let peeked = self.queues.peek(&request.queue, max).await?;
        Ok(Response::new(PeekResponse {
            deliveries: peeked.iter().map(convert::peeked).collect(),
        }))
    }

    async fn purge_queue(&self, request: Request<PurgeQueueRequest>) -> Result<Response<PurgeQueueResponse>, Status> {
        let purged = self.queues.purge(&request.into_inner().queue).await?;
        Ok(Response::new(PurgeQueueResponse { purged }))
    }

    async fn purge_dead_letters(
        &self,
        request: Request<PurgeDeadLettersRequest>,
    ) -> Result<Response<PurgeDeadLettersResponse>, Status> {
        let purged = self.queues.purge_dead_letters(&request.into_inner().queue).await?;
        Ok(Response::new(PurgeDeadLettersResponse { purged }))
    }

    async fn list_queues(&self, request: Request<ListQueuesRequest>) -> Result<Response<ListQueuesResponse>, Status> {
        let request = request.into_inner();
        let page_size = convert::count(request.page_size, "page_size", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?;
        let (queues, more) = self.queues.list(&request.prefix, &request.page_token, page_size);
        let next_page_token = if more {
            queues.last().map(|queue| queue.name.clone())
        } else {
            None
        };
        let queues = queues.into_iter().map(queue).collect();
        Ok(Response::new(ListQueuesResponse {
            queues,
            next_page_token: next_page_token.unwrap_or_default(),
        }))
    }

    async fn get_queue(&self, request: Request<GetQueueRequest>) -> Result<Response<GetQueueResponse>, Status> {
        let info = self.queues.queue(&request.into_inner().queue)?;
        Ok(Response::new(GetQueueResponse {
            queue: Some(queue(info)),
        }))
    }
}

fn queue(info: QueueInfo) -> Queue {
    Queue {
        name: info.name,
        ready: info.ready,
        leased: info.leased,
        delayed: info.delayed,
        dead_letters: info.dead_letters,
        consumers: info.consumers,
    }
}

/// Numbers and encodes the requests of one publish stream.
struct Batches {
    queues: Queues,
    queue: String,
    batch: u64,
}

impl Batches {
    fn encode(&mut self, request: PublishStreamRequest) -> Result<Encoded, Status> {
        if !request.queue.is_empty() {
            self.queue = request.queue;
        }
        let given = request.messages.len();
        if given == 0 || given > BATCH_MESSAGES_MAX {
            return Err(invalid(format!(
                "{given} messages in a batch; 1 to {BATCH_MESSAGES_MAX} are allowed"
            )));
        }
        self.batch += 1;
        let mut batch = self.queues.batch();
        let mut failures = Vec::new();
        for (index, message) in request.messages.iter().enumerate() {
            if let Err(error) = convert::push(&mut batch, &self.queue, message) {
                failures.push(publish_failure(index, &error));
            }
        }
        Ok(Encoded {
            batch,
            number: self.batch,
            failures,
        })
    }
}

struct Encoded {
    batch: crate::service::PublishBatch,
    number: u64,
    failures: Vec<PublishFailure>,
}

impl Encoded {
    async fn publish(self, queues: &Queues) -> Result<PublishStreamResponse, Status> {
        let Self {
            batch,
            number,
            mut failures,
        } = self;
        let stored = batch.len();
        let message_ids = match queues.publish(batch).await {
            Ok(ids) => spread(&ids, &failures),
            // The stream goes on: the next batch may fit.
            Err(error) if error.retry_after().is_some() && !matches!(error, ServiceError::Stopped) => {
                let messages = stored + failures.len();
                let refused: Vec<u32> = failures.iter().map(|failure| failure.index).collect();
                let others = (0..messages).filter(|index| !refused.iter().any(|refused| *refused as usize == *index));
                failures.extend(others.map(|index| publish_failure(index, &error)));
                failures.sort_by_key(|failure| failure.index);
                vec![Bytes::new(); messages]
            }
            Err(error) => return Err(error.into()),
        };
        Ok(PublishStreamResponse {
            batch: number,
            message_ids,
            failures,
        })
    }
}

fn publish_failure(index: usize, error: &ServiceError) -> PublishFailure {
    PublishFailure {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        reason: error.reason().to_owned(),
        message: error.to_string(),
        retriable: error.retry_after().is_some(),
    }
}

/// One entry for each message of the batch: its id, or nothing where it was refused. All ids lie in one buffer.
fn spread(ids: &[MessageId], failures: &[PublishFailure]) -> Vec<Bytes> {
    let mut buffer = BytesMut::with_capacity(ids.len() * 16);
    for id in ids {
        buffer.extend_from_slice(&id.0);
    }
    let buffer = buffer.freeze();
    let mut spread: Vec<Bytes> = (0..ids.len()).map(|n| buffer.slice(n * 16..(n + 1) * 16)).collect();
    for failure in failures {
        spread.insert(failure.index as usize, Bytes::new());
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_messages_leave_a_gap_in_the_ids() {
        let failure = |index| PublishFailure {
            index,
            reason: String::new(),
            message: String::new(),
            retriable: false,
        };
        let spread = spread(&[MessageId([1; 16]), MessageId([2; 16])], &[failure(0), failure(2)]);
        assert_eq!(
            spread,
            [
                Bytes::new(),
                Bytes::from(vec![1; 16]),
                Bytes::new(),
                Bytes::from(vec![2; 16])
            ]
        );
    }
}
