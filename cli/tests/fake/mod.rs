//! A server that answers by the book and remembers what it was asked. It shows what the command line sends and how it
//! takes answers; what a real server does is shown by the suites of the workspace.

mod kv;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{io::Write, sync::mpsc, thread};

use boltq_proto::admin::v1::admin_service_server::{AdminService, AdminServiceServer};
use boltq_proto::admin::v1::{GetStatsRequest, GetStatsResponse, StorageStats};
use boltq_proto::cluster::v1::cluster_service_server::{ClusterService, ClusterServiceServer};
use boltq_proto::cluster::v1::{
    GetStatusRequest, GetStatusResponse, JoinRequest, JoinResponse, LeaveRequest, LeaveResponse, Node,
    TransferLeadershipRequest, TransferLeadershipResponse,
};
use boltq_proto::kv::v1::kv_service_server::KvServiceServer;
use boltq_proto::queue::v1::queue_service_server::{QueueService, QueueServiceServer};
use boltq_proto::queue::v1::subscribe_request::Request as Event;
use boltq_proto::queue::v1::*;
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

pub(crate) use self::kv::KvAsked;

pub(crate) const ID: &str = "01010101010101010101010101010101";
/// Settling this one fails.
pub(crate) const UNKNOWN_ID: &str = "00000000000000000000000000000000";
/// A publish with this payload is refused.
pub(crate) const REFUSED: &[u8] = b"refuse me";

/// A publish with this payload ends the stream instead of an answer.
pub(crate) const BREAK: &[u8] = b"break here";

/// What was asked, in order.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) published: Vec<PublishRequest>,
    pub(crate) batches: Vec<PublishStreamRequest>,
    pub(crate) consumed: Vec<ConsumeRequest>,
    pub(crate) acked: Vec<AckRequest>,
    pub(crate) nacked: Vec<NackRequest>,
    pub(crate) subscribed: Vec<SubscribeInit>,
    /// Tokens.
    pub(crate) stream_acked: Vec<Bytes>,
    pub(crate) keys: Vec<Option<String>>,
    pub(crate) joined: Vec<JoinRequest>,
    pub(crate) left: Vec<String>,
    pub(crate) transferred: Vec<TransferLeadershipRequest>,
    /// Of the calls that only look, whether each had to be current.
    pub(crate) linearizable: Vec<bool>,
    pub(crate) kv: Vec<KvAsked>,
    /// Of changes of queues, the names of the settings.
    pub(crate) masks: Vec<Vec<String>>,
    pub(crate) extended: Vec<ExtendLeaseRequest>,
    /// Queues that were purged.
    pub(crate) purged: Vec<String>,
    pub(crate) deleted: Vec<String>,
}

/// What is not by the book.
#[derive(Debug, Default)]
struct Mood {
    refuse_all: AtomicBool,
    want_key: AtomicBool,
    slow_purge: tokio::sync::Notify,
}

#[derive(Clone, Default)]
struct Service {
    asked: Arc<Mutex<Asked>>,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
    mood: Arc<Mood>,
}

pub(crate) struct Fake {
    pub(crate) addr: SocketAddr,
    service: Service,
}

impl Fake {
    /// Serves until the test process ends.
    pub(crate) fn start() -> Self {
        let service = Service::default();
        let (started, addr) = mpsc::channel();
        let serving = service.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                started.send(listener.local_addr().unwrap()).unwrap();
                let (reporter, health) = tonic_health::server::health_reporter();
                reporter.set_serving::<QueueServiceServer<Service>>().await;
                let mut server = Server::builder();
                let router = server
                    .add_service(health)
                    .add_service(AdminServiceServer::new(serving.clone()))
                    .add_service(ClusterServiceServer::new(serving.clone()))
                    .add_service(KvServiceServer::new(serving.clone()))
                    .add_service(QueueServiceServer::new(serving));
                router
                    .serve_with_incoming(TcpListenerStream::new(listener))
                    .await
                    .unwrap();
            });
        });
        Self {
            addr: addr.recv().unwrap(),
            service,
        }
    }

    /// Starts with messages to deliver.
    pub(crate) fn with(payloads: &[&'static [u8]]) -> Self {
        let fake = Self::start();
        *fake.service.deliveries.lock().unwrap() = payloads
            .iter()
            .zip(1u8..)
            .map(|(payload, n)| Delivery {
                delivery_token: vec![n].into(),
                message_id: vec![n; 16].into(),
                payload: Bytes::from_static(payload),
                headers: [("k".to_owned(), "v".to_owned())].into(),
                ..Delivery::default()
            })
            .collect();
        fake
    }

    pub(crate) fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.service.asked.lock().unwrap()
    }

    /// Refuses every message of a stream from now on.
    pub(crate) fn refuse_all(&self) {
        self.service.mood.refuse_all.store(true, Ordering::Relaxed);
    }

    /// Refuses every publish from now on, for want of the right key.
    pub(crate) fn want_key(&self) {
        self.service.mood.want_key.store(true, Ordering::Relaxed);
    }

    /// A purge of the queue "slow" is not answered before this.
    pub(crate) fn finish_slow_purge(&self) {
        self.service.mood.slow_purge.notify_one();
    }

    /// What is to be delivered has no tokens, as what is peeked at.
    pub(crate) fn forget_tokens(&mut self) {
        for delivery in self.service.deliveries.lock().unwrap().iter_mut() {
            delivery.delivery_token.clear();
        }
    }

    /// Runs `boltq` against this server.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        run(boltq(args).env("BOLTQ_ADDR", self.addr.to_string()), b"")
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        run(boltq(args).env("BOLTQ_ADDR", self.addr.to_string()), input)
    }
}

/// `boltq` with an environment that does not depend on that of the test.
pub(crate) fn boltq(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_boltq"));
    command.args(args).env_clear();
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn run(command: &mut Command, input: &[u8]) -> Ran {
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    Ran {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

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

type Answer<T> = Result<Response<T>, Status>;

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
    fn looked(&self, linearizable: bool) {
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
            Event::Nack(_) | Event::Extend(_) => unreachable!("no command sends it"),
        };
        let _ = responses.send(Ok(response));
    }
}

#[tonic::async_trait]
impl AdminService for Service {
    async fn get_stats(&self, request: Request<GetStatsRequest>) -> Answer<GetStatsResponse> {
        self.looked(request.into_inner().linearizable);
        Ok(Response::new(GetStatsResponse {
            queues: BTreeMap::from([("email_jobs".to_owned(), 3)]),
            dead_letters: BTreeMap::from([("email_jobs_dead_letter".to_owned(), 1)]),
            published: 4,
            uptime: Some(prost_types::Duration {
                seconds: 12,
                nanos: 500_000_000,
            }),
            version: "0.1.0".into(),
            storage: Some(StorageStats {
                mode: "disk".into(),
                bytes: 33_554_432,
                writable: true,
            }),
            ..GetStatsResponse::default()
        }))
    }
}

fn member(name: &str, voter: bool) -> Node {
    Node {
        node_id: name.to_owned(),
        raft_address: format!("{name}:9100"),
        voter,
        ..Node::default()
    }
}

#[tonic::async_trait]
impl ClusterService for Service {
    async fn join(&self, request: Request<JoinRequest>) -> Answer<JoinResponse> {
        let request = request.into_inner();
        let node = Some(member("n4", !request.non_voter));
        self.asked.lock().unwrap().joined.push(request);
        let groups = vec!["meta".to_owned(), "queue".to_owned()];
        Ok(Response::new(JoinResponse { node, groups }))
    }

    async fn leave(&self, request: Request<LeaveRequest>) -> Answer<LeaveResponse> {
        let node = request.into_inner().node_id;
        if node == "n9" {
            let info = ErrorDetails::with_error_info("NODE_NOT_FOUND", "boltq", std::collections::HashMap::new());
            let text = format!("node {node:?} is not in the cluster");
            return Err(Status::with_error_details(Code::NotFound, text, info));
        }
        self.asked.lock().unwrap().left.push(node);
        let groups = vec!["meta".to_owned(), "queue".to_owned()];
        Ok(Response::new(LeaveResponse { groups }))
    }

    async fn get_status(&self, _: Request<GetStatusRequest>) -> Answer<GetStatusResponse> {
        Ok(Response::new(GetStatusResponse::default()))
    }

    async fn transfer_leadership(
        &self,
        request: Request<TransferLeadershipRequest>,
    ) -> Answer<TransferLeadershipResponse> {
        self.asked.lock().unwrap().transferred.push(request.into_inner());
        let leader = Some(member("n2", true));
        Ok(Response::new(TransferLeadershipResponse { leader }))
    }
}
