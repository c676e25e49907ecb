//! A server that answers by the book and remembers what it was asked. It shows what the command line sends and how it
//! takes answers; what a real server does is shown by the suites of the workspace.

mod admin;
mod cluster;
mod kv;
mod queue;

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{io::Write, sync::mpsc, thread};

use boltq_proto::admin::v1::admin_service_server::AdminServiceServer;
use boltq_proto::cluster::v1::cluster_service_server::ClusterServiceServer;
use boltq_proto::cluster::v1::{JoinRequest, TransferLeadershipRequest};
use boltq_proto::kv::v1::kv_service_server::KvServiceServer;
use boltq_proto::queue::v1::queue_service_server::QueueServiceServer;
use boltq_proto::queue::v1::{
    AckRequest, ConsumeRequest, Delivery, ExtendLeaseRequest, ListScheduledRequest, NackRequest, PublishRequest,
    PublishStreamRequest, SubscribeInit,
};
use bytes::Bytes;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Response, Status};

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
    pub(crate) listed: Vec<ListScheduledRequest>,
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

type Answer<T> = Result<Response<T>, Status>;
