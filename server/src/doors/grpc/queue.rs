//! `boltq.queue.v1.QueueService`.

use std::pin::Pin;
use std::sync::Arc;

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_proto::queue::v1::queue_service_server::QueueService;
use boltq_proto::queue::v1::{
    AckRequest, AckResponse, CancelScheduledRequest, CancelScheduledResponse, ConsumeRequest, ConsumeResponse,
    CreateQueueRequest, CreateQueueResponse, DeleteQueueRequest, DeleteQueueResponse, ExtendLeaseRequest,
    ExtendLeaseResponse, GetQueueRequest, GetQueueResponse, ListQueuesRequest, ListQueuesResponse,
    ListScheduledRequest, ListScheduledResponse, NackRequest, NackResponse, PeekRequest, PeekResponse, PublishRequest,
    PublishResponse, PublishStreamRequest, PublishStreamResponse, PurgeDeadLettersRequest, PurgeDeadLettersResponse,
    PurgeQueueRequest, PurgeQueueResponse, Queue, RedriveDeadLettersRequest, RedriveDeadLettersResponse,
    RescheduleRequest, RescheduleResponse, SubscribeRequest, SubscribeResponse, UpdateQueueRequest,
    UpdateQueueResponse,
};
use bytes::Bytes;
use futures_util::Stream;
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::convert::{self, Handles};
use super::error::invalid;
use super::{publish, redrive, scheduled, settings, subscribe};
use crate::doors::bounds::{PAGE_DEFAULT, PEEK_DEFAULT};
use crate::doors::intake::{Hold, Reader};
use crate::doors::traced;
use crate::service::{ANSWER_BYTES_MAX, QueueInfo, Queues, ServiceError, Settlement};

pub(super) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

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
        let caller = traced::context(&self.queues, request.metadata().as_ref());
        let request = request.into_inner();
        let message = request.message.ok_or_else(|| invalid("message is missing"))?;
        let mut batch = self.queues.batch();
        batch.called_in(caller);
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
        let caller = traced::context(&self.queues, request.metadata().as_ref());
        let answers = publish::answers(self.queues.clone(), caller, request.into_inner());
        Ok(Response::new(Box::pin(answers)))
    }

    async fn consume(&self, request: Request<ConsumeRequest>) -> Result<Response<ConsumeResponse>, Status> {
        let reader = reader(&request);
        let request = request.into_inner();
        let max = convert::count(request.max_messages, "max_messages", 1, BATCH_MESSAGES_MAX)?;
        let (lease, wait) = (convert::lease(request.lease)?, convert::wait(request.wait)?);
        let consumer = self.queues.detached_consumer();
        let room = || hold(reader.as_ref());
        let queue = &request.queue;
        let taken = self.queues.consume_with_room(&consumer, queue, max, lease, wait, room);
        let Some((deliveries, hold)) = taken.await? else {
            return Ok(Response::new(ConsumeResponse::default()));
        };
        let deliveries = deliveries.iter().map(convert::delivery).collect();
        Ok(held(ConsumeResponse { deliveries }, hold))
    }

    type SubscribeStream = Answers<SubscribeResponse>;

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let reader = reader(&request);
        let answers = subscribe::open(self.queues.clone(), reader, request.into_inner()).await?;
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
        let how = convert::nack(request.delay, request.dead_letter, request.release)?;
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
        let reader = reader(&request);
        let request = request.into_inner();
        let max = convert::count(request.max_messages, "max_messages", PEEK_DEFAULT, BATCH_MESSAGES_MAX)?;
        self.queues.begin_look(request.linearizable).await?;
        let hold = hold(reader.as_ref()).await;
        let peeked = self.queues.peek(&request.queue, max).await?;
        let deliveries = peeked.iter().map(convert::peeked).collect();
        Ok(held(PeekResponse { deliveries }, hold))
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

    type RedriveDeadLettersStream = Answers<RedriveDeadLettersResponse>;

    async fn redrive_dead_letters(
        &self,
        request: Request<RedriveDeadLettersRequest>,
    ) -> Result<Response<Self::RedriveDeadLettersStream>, Status> {
        Ok(Response::new(redrive::answers(
            self.queues.clone(),
            request.into_inner(),
        )))
    }

    async fn list_scheduled(
        &self,
        request: Request<ListScheduledRequest>,
    ) -> Result<Response<ListScheduledResponse>, Status> {
        scheduled::list(&self.queues, request.into_inner()).await
    }

    async fn cancel_scheduled(
        &self,
        request: Request<CancelScheduledRequest>,
    ) -> Result<Response<CancelScheduledResponse>, Status> {
        scheduled::cancel(&self.queues, request.into_inner()).await
    }

    async fn reschedule(&self, request: Request<RescheduleRequest>) -> Result<Response<RescheduleResponse>, Status> {
        scheduled::reschedule(&self.queues, request.into_inner()).await
    }

    async fn create_queue(
        &self,
        request: Request<CreateQueueRequest>,
    ) -> Result<Response<CreateQueueResponse>, Status> {
        let request = request.into_inner();
        let options = settings::read(request.settings.unwrap_or_default())?;
        let (info, created) = self.queues.create_queue(&request.queue, &options).await?;
        let queue = Some(queue(info));
        Ok(Response::new(CreateQueueResponse { queue, created }))
    }

    async fn update_queue(
        &self,
        request: Request<UpdateQueueRequest>,
    ) -> Result<Response<UpdateQueueResponse>, Status> {
        let request = request.into_inner();
        let options = settings::read(request.settings.unwrap_or_default())?;
        let which = settings::read_mask(request.update_mask.as_ref(), &options)?;
        let info = self.queues.update_queue(&request.queue, which, &options).await?;
        let queue = Some(queue(info));
        Ok(Response::new(UpdateQueueResponse { queue }))
    }

    async fn delete_queue(
        &self,
        request: Request<DeleteQueueRequest>,
    ) -> Result<Response<DeleteQueueResponse>, Status> {
        let request = request.into_inner();
        let deleted_messages = self.queues.delete_queue(&request.queue, request.if_empty).await?;
        Ok(Response::new(DeleteQueueResponse { deleted_messages }))
    }

    async fn list_queues(&self, request: Request<ListQueuesRequest>) -> Result<Response<ListQueuesResponse>, Status> {
        let request = request.into_inner();
        let page_size = convert::count(request.page_size, "page_size", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?;
        self.queues.begin_look(request.linearizable).await?;
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
        let request = request.into_inner();
        self.queues.begin_look(request.linearizable).await?;
        let info = self.queues.queue(&request.queue)?;
        Ok(Response::new(GetQueueResponse {
            queue: Some(queue(info)),
        }))
    }
}

/// Who reads the answer; nobody is known where no connection is.
pub(super) fn reader<T>(request: &Request<T>) -> Option<Arc<Reader>> {
    request.extensions().get().cloned()
}

/// Waits for room for an answer with messages.
async fn hold(reader: Option<&Arc<Reader>>) -> Option<Hold> {
    match reader {
        Some(reader) => Some(reader.hold(ANSWER_BYTES_MAX, None).await),
        None => None,
    }
}

/// The answer, which holds its room until it has left.
pub(super) fn held<T: Message>(answer: T, hold: Option<Hold>) -> Response<T> {
    let bytes = answer.encoded_len();
    let mut response = Response::new(answer);
    if let Some(mut hold) = hold {
        hold.shrink(bytes);
        response.extensions_mut().insert(Arc::new(hold));
    }
    response
}

fn queue(info: QueueInfo) -> Queue {
    Queue {
        name: info.name,
        ready: info.ready,
        leased: info.leased,
        delayed: info.delayed,
        dead_letters: info.dead_letters,
        consumers: info.consumers,
        settings: Some(settings::write(&info.options)),
    }
}
