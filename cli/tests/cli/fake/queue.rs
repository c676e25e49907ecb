//! Queues by the book.

use std::sync::atomic::Ordering;

use boltq_proto::queue::v1::queue_service_server::QueueService;
use boltq_proto::queue::v1::subscribe_request::Request as Event;
use boltq_proto::queue::v1::*;
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

use super::{Answer, BREAK, REFUSED, Service};

fn not_found(queue: &str) -> Status {
    let info = ErrorDetails::with_error_info("QUEUE_NOT_FOUND", "boltq", std::collections::HashMap::new());
    Status::with_error_details(Code::NotFound, format!("queue {queue:?} not found"), info)
}

fn queue(name: &str) -> Queue {
    Queue {
        name: name.to_owned(),
        ready: 3,
        dead_letters: 1,
        ..Queue::default()
    }
}

fn settle(ids: &[Bytes]) -> (u32, Vec<SettleFailure>) {
    let unknown: Bytes = vec![0; 16].into();
    let failures: Vec<_> = ids
        .iter()
        .filter(|id| **id == unknown)
        .map(|id| SettleFailure {
            token: id.clone(),
            reason: SettleFailureReason::NotFound.into(),
        })
        .collect();
    ((ids.len() - failures.len()) as u32, failures)
}

#[tonic::async_trait]
impl QueueService for Service {
    type PublishStreamStream = UnboundedReceiverStream<Result<PublishStreamResponse, Status>>;
    type SubscribeStream = UnboundedReceiverStream<Result<SubscribeResponse, Status>>;
    type RedriveDeadLettersStream = UnboundedReceiverStream<Result<RedriveDeadLettersResponse, Status>>;

    async fn publish(&self, request: Request<PublishRequest>) -> Answer<PublishResponse> {
        let mut asked = self.asked.lock().unwrap();
        let key = request
            .metadata()
            .get("x-api-key")
            .map(|key| key.to_str().unwrap().to_owned());
        asked.keys.push(key);
        if self.mood.want_key.load(Ordering::Relaxed) {
            let info = ErrorDetails::with_error_info("UNAUTHENTICATED", "boltq", std::collections::HashMap::new());
            return Err(Status::with_error_details(Code::Unauthenticated, "unauthorized", info));
        }
        asked.published.push(request.into_inner());
        Ok(Response::new(PublishResponse {
            message_id: vec![1; 16].into(),
        }))
    }

    /// Looks at the first request before it answers the call, as a server may.
    async fn publish_stream(
        &self,
        request: Request<Streaming<PublishStreamRequest>>,
    ) -> Answer<Self::PublishStreamStream> {
        let mut requests = request.into_inner();
        let mut next = requests.message().await?;
        let (responses, receiver) = unbounded_channel();
        let asked = self.asked.clone();
        let refuse_all = self.mood.refuse_all.load(Ordering::Relaxed);
        tokio::spawn(async move {
            for batch in 1.. {
                let Some(request) = next else { break };
                if request.messages.iter().any(|message| message.payload == BREAK) {
                    break;
                }
                let refused = |message: &boltq_proto::r#type::v1::Message| refuse_all || message.payload == REFUSED;
                let response = PublishStreamResponse {
                    batch,
                    // A server gives ids only when a majority has the messages.
                    message_ids: request
                        .messages
                        .iter()
                        .filter(|_| request.ack_level() == AckLevel::Quorum)
                        .map(|message| {
                            if refused(message) {
                                Bytes::new()
                            } else {
                                vec![1; 16].into()
                            }
                        })
                        .collect(),
                    failures: (0..)
                        .zip(&request.messages)
                        .filter(|(_, message)| refused(message))
                        .map(|(index, _)| PublishFailure {
                            index,
                            reason: "INVALID_HEADERS".into(),
                            message: "no".into(),
                            retriable: false,
                        })
                        .collect(),
                };
                asked.lock().unwrap().batches.push(request);
                let _ = responses.send(Ok(response));
                next = requests.message().await.unwrap_or_default();
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }

    async fn consume(&self, request: Request<ConsumeRequest>) -> Answer<ConsumeResponse> {
        let request = request.into_inner();
        let mut waiting = self.deliveries.lock().unwrap();
        let count = waiting.len().min(request.max_messages as usize);
        let deliveries = waiting.drain(..count).collect();
        self.asked.lock().unwrap().consumed.push(request);
        Ok(Response::new(ConsumeResponse { deliveries }))
    }

    async fn subscribe(&self, request: Request<Streaming<SubscribeRequest>>) -> Answer<Self::SubscribeStream> {
        let mut requests = request.into_inner();
        let (responses, receiver) = unbounded_channel();
        let service = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(SubscribeRequest { request: Some(event) })) = requests.message().await {
                service.on(event, &responses);
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }

    async fn ack(&self, request: Request<AckRequest>) -> Answer<AckResponse> {
        let request = request.into_inner();
        let (settled, failures) = settle(&[&request.message_ids[..], &request.delivery_tokens].concat());
        self.asked.lock().unwrap().acked.push(request);
        Ok(Response::new(AckResponse { settled, failures }))
    }

    async fn nack(&self, request: Request<NackRequest>) -> Answer<NackResponse> {
        let request = request.into_inner();
        let (settled, failures) = settle(&request.message_ids);
        self.asked.lock().unwrap().nacked.push(request);
        Ok(Response::new(NackResponse { settled, failures }))
    }

    /// Leases whose token begins with 0 have ended.
    async fn extend_lease(&self, request: Request<ExtendLeaseRequest>) -> Answer<ExtendLeaseResponse> {
        let request = request.into_inner();
        let lost = request.delivery_tokens.iter().filter(|token| token.starts_with(&[0]));
        let failures: Vec<_> = lost
            .map(|token| SettleFailure {
                token: token.clone(),
                reason: SettleFailureReason::LeaseLost.into(),
            })
            .collect();
        let extended = (request.delivery_tokens.len() - failures.len()) as u32;
        self.asked.lock().unwrap().extended.push(request);
        Ok(Response::new(ExtendLeaseResponse { extended, failures }))
    }

    async fn peek(&self, request: Request<PeekRequest>) -> Answer<PeekResponse> {
        let request = request.into_inner();
        self.looked(request.linearizable);
        let count = request.max_messages as usize;
        let deliveries = self.deliveries.lock().unwrap().iter().take(count).cloned().collect();
        Ok(Response::new(PeekResponse { deliveries }))
    }

    async fn purge_queue(&self, request: Request<PurgeQueueRequest>) -> Answer<PurgeQueueResponse> {
        let queue = request.into_inner().queue;
        self.asked.lock().unwrap().purged.push(queue.clone());
        match queue.as_str() {
            "slow" => {
                self.mood.slow_purge.notified().await;
                Ok(Response::new(PurgeQueueResponse { purged: 1 }))
            }
            "empty" => Ok(Response::new(PurgeQueueResponse { purged: 0 })),
            "email_jobs" => Ok(Response::new(PurgeQueueResponse { purged: 1204 })),
            other => Err(not_found(other)),
        }
    }

    async fn purge_dead_letters(&self, _: Request<PurgeDeadLettersRequest>) -> Answer<PurgeDeadLettersResponse> {
        Ok(Response::new(PurgeDeadLettersResponse { purged: 1 }))
    }

    /// Breaks off after the first portion if there is no bound.
    async fn redrive_dead_letters(
        &self,
        request: Request<RedriveDeadLettersRequest>,
    ) -> Answer<Self::RedriveDeadLettersStream> {
        let request = request.into_inner();
        let (responses, receiver) = unbounded_channel();
        let _ = responses.send(Ok(RedriveDeadLettersResponse { redriven: 1 }));
        let bounded = request.headers.len() as u64 + request.max_messages + u64::from(request.max_per_second);
        let _ = responses.send(match bounded {
            0 => Err(not_found(&request.queue)),
            redriven => Ok(RedriveDeadLettersResponse { redriven }),
        });
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }

    /// Two pages of one message each.
    async fn list_scheduled(&self, request: Request<ListScheduledRequest>) -> Answer<ListScheduledResponse> {
        let request = request.into_inner();
        let first = request.page_token.is_empty();
        let message = ScheduledMessage {
            message_id: Bytes::copy_from_slice(&[0xAB; 16]),
            deliver_at: Some(prost_types::Timestamp {
                seconds: if first { 60 } else { 120 },
                nanos: 0,
            }),
            priority: 3,
        };
        self.asked.lock().unwrap().listed.push(request);
        Ok(Response::new(ListScheduledResponse {
            messages: vec![message],
            next_page_token: if first { "more".into() } else { String::new() },
        }))
    }

    async fn cancel_scheduled(&self, request: Request<CancelScheduledRequest>) -> Answer<CancelScheduledResponse> {
        let (cancelled, failures) = settle(&request.into_inner().message_ids);
        Ok(Response::new(CancelScheduledResponse { cancelled, failures }))
    }

    async fn reschedule(&self, request: Request<RescheduleRequest>) -> Answer<RescheduleResponse> {
        let request = request.into_inner();
        let deliver_at = match request.due {
            Some(reschedule_request::Due::DeliverAt(at)) => Some(at),
            Some(reschedule_request::Due::Delay(delay)) => Some(prost_types::Timestamp {
                seconds: delay.seconds,
                nanos: delay.nanos,
            }),
            None => return Err(not_found("no due time")),
        };
        Ok(Response::new(RescheduleResponse { deliver_at }))
    }

    /// What was asked for, as a queue that has it.
    async fn create_queue(&self, request: Request<CreateQueueRequest>) -> Answer<CreateQueueResponse> {
        let CreateQueueRequest { queue: name, settings } = request.into_inner();
        let queue = Queue {
            settings,
            ..queue(&name)
        };
        Ok(Response::new(CreateQueueResponse {
            queue: Some(queue),
            created: true,
        }))
    }

    async fn update_queue(&self, request: Request<UpdateQueueRequest>) -> Answer<UpdateQueueResponse> {
        let UpdateQueueRequest {
            queue: name,
            settings,
            update_mask,
        } = request.into_inner();
        self.asked
            .lock()
            .unwrap()
            .masks
            .push(update_mask.unwrap_or_default().paths);
        let queue = Queue {
            settings,
            ..queue(&name)
        };
        Ok(Response::new(UpdateQueueResponse { queue: Some(queue) }))
    }

    async fn delete_queue(&self, request: Request<DeleteQueueRequest>) -> Answer<DeleteQueueResponse> {
        let request = request.into_inner();
        let deleted_messages = if request.if_empty { 0 } else { 7 };
        self.asked.lock().unwrap().deleted.push(request.queue);
        Ok(Response::new(DeleteQueueResponse { deleted_messages }))
    }

    async fn list_queues(&self, request: Request<ListQueuesRequest>) -> Answer<ListQueuesResponse> {
        let request = request.into_inner();
        self.looked(request.linearizable);
        let response = match request.page_token.as_str() {
            "" => ListQueuesResponse {
                queues: vec![queue("a"), queue("b")],
                next_page_token: "more".into(),
            },
            _ => ListQueuesResponse {
                queues: vec![queue("c")],
                next_page_token: String::new(),
            },
        };
        Ok(Response::new(response))
    }

    async fn get_queue(&self, request: Request<GetQueueRequest>) -> Answer<GetQueueResponse> {
        let request = request.into_inner();
        self.looked(request.linearizable);
        let queue = match request.queue.as_str() {
            "new" => return Err(not_found("new")),
            "empty" => Queue::default(),
            name => queue(name),
        };
        let queue = Some(queue);
        Ok(Response::new(GetQueueResponse { queue }))
    }
}

impl Service {
    pub(super) fn looked(&self, linearizable: bool) {
        self.asked.lock().unwrap().linearizable.push(linearizable);
    }

    fn on(&self, event: Event, responses: &UnboundedSender<Result<SubscribeResponse, Status>>) {
        let mut asked = self.asked.lock().unwrap();
        let response = match event {
            Event::Init(init) => {
                asked.subscribed.push(init);
                let deliveries = std::mem::take(&mut *self.deliveries.lock().unwrap());
                SubscribeResponse {
                    deliveries,
                    settled: Vec::new(),
                }
            }
            Event::Ack(ack) => {
                asked.stream_acked.extend(ack.delivery_tokens);
                let settled = Settled {
                    request_id: ack.request_id,
                    failures: Vec::new(),
                };
                SubscribeResponse {
                    deliveries: Vec::new(),
                    settled: vec![settled],
                }
            }
            Event::Nack(_) | Event::Extend(_) | Event::Stop(_) => unreachable!("no command sends it"),
        };
        let _ = responses.send(Ok(response));
    }
}
