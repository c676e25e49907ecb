use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, NodeId};
use boltq_proto::internal::v1::peer_service_client::PeerServiceClient;
use boltq_proto::internal::v1::{CallerProof, Hello, ProveRequest, prove_request, prove_response};
use boltq_raft::{Peer, Receiver, Transport, TransportError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::peer::proof::{Caller, Party};
use crate::peer::{PeerConfig, PeerInfo, PeerLimits, PeerSecret, Peers};

pub(super) const WITHIN: Duration = Duration::from_secs(5);
pub(super) const GROUP: GroupId = GroupId(1);
pub(super) const NAME: &str = "the-name-of-the-node";

pub(super) fn info(node: u64, cluster: u64) -> PeerInfo {
    PeerInfo {
        node: NodeId(node),
        name: NAME.to_owned(),
        cluster,
        raft_address: "raft:9100".to_owned(),
        messaging_address: "messaging:9091".to_owned(),
        admin_address: "admin:9090".to_owned(),
        version: "1.2.3".to_owned(),
        stream_groups: Some(3),
    }
}

/// A node of cluster 7.
pub(super) struct Node {
    pub(super) peers: Peers,
    pub(super) peer: Peer,
}

impl Node {
    pub(super) async fn start(id: u64, config: PeerConfig) -> Self {
        Self::start_at("127.0.0.1:0", info(id, 7), config).await
    }

    pub(super) async fn start_at(address: &str, info: PeerInfo, config: PeerConfig) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let node = info.node;
        let peers = Peers::start(listener, config, Arc::new(move || info.clone()))
            .await
            .unwrap();
        let address = peers.address().to_string();
        Self {
            peers,
            peer: Peer { node, address },
        }
    }

    /// One that answers what it is asked.
    pub(super) async fn echo(id: u64, config: PeerConfig) -> Self {
        let node = Self::start(id, config).await;
        node.peers.register(GROUP, Arc::new(Echo));
        node
    }

    pub(super) fn call(&self, to: &Peer, request: &'static [u8]) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        self.peers.call(to, GROUP, Bytes::from_static(request), WITHIN)
    }
}

pub(super) fn with_secret(secret: &str) -> PeerConfig {
    PeerConfig {
        secret: Some(PeerSecret::new(secret)),
        ..PeerConfig::default()
    }
}

pub(super) fn with_limits(change: impl FnOnce(&mut PeerLimits)) -> PeerConfig {
    let mut config = PeerConfig::default();
    change(&mut config.limits);
    config
}

pub(super) struct Echo;

impl Receiver for Echo {
    fn receive(&self, request: Bytes) -> BoxFuture<'static, Result<Bytes, String>> {
        Box::pin(std::future::ready(Ok(request)))
    }

    fn receive_chunks(
        &self,
        _chunks: BoxStream<'static, Result<Bytes, String>>,
    ) -> BoxFuture<'static, Result<Bytes, String>> {
        Box::pin(std::future::ready(Err("no transfers here".to_owned())))
    }
}

/// Receives with a function.
pub(super) struct Calls<F>(pub(super) F);

impl<F> Receiver for Calls<F>
where
    F: Fn(Bytes) -> BoxFuture<'static, Result<Bytes, String>> + Send + Sync + 'static,
{
    fn receive(&self, request: Bytes) -> BoxFuture<'static, Result<Bytes, String>> {
        (self.0)(request)
    }

    fn receive_chunks(
        &self,
        chunks: BoxStream<'static, Result<Bytes, String>>,
    ) -> BoxFuture<'static, Result<Bytes, String>> {
        Echo.receive_chunks(chunks)
    }
}

/// Receives transfers with a function; calls are echoed.
pub(super) struct Transfers<F>(pub(super) F);

impl<F> Receiver for Transfers<F>
where
    F: Fn(BoxStream<'static, Result<Bytes, String>>) -> BoxFuture<'static, Result<Bytes, String>>
        + Send
        + Sync
        + 'static,
{
    fn receive(&self, request: Bytes) -> BoxFuture<'static, Result<Bytes, String>> {
        Echo.receive(request)
    }

    fn receive_chunks(
        &self,
        chunks: BoxStream<'static, Result<Bytes, String>>,
    ) -> BoxFuture<'static, Result<Bytes, String>> {
        (self.0)(chunks)
    }
}

/// What an unreachable peer is said to be.
pub(super) fn why_unreachable(result: Result<Bytes, TransportError>) -> String {
    match result {
        Err(TransportError::Unreachable { why, .. }) => why,
        other => panic!("not unreachable: {other:?}"),
    }
}

pub(super) fn why_refused(result: Result<Bytes, TransportError>) -> String {
    match result {
        Err(TransportError::Refused { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

/// A client that keeps to no rules.
pub(super) async fn raw(node: &Node) -> PeerServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", node.peer.address)).unwrap();
    PeerServiceClient::new(endpoint.connect().await.unwrap())
}

fn step(step: prove_request::Step) -> ProveRequest {
    ProveRequest { step: Some(step) }
}

/// Sends a hello, then what `proof` makes of the challenge.
pub(super) async fn prove(
    client: &mut PeerServiceClient<Channel>,
    hello: Hello,
    proof: impl FnOnce(boltq_proto::internal::v1::Challenge) -> CallerProof,
) -> Result<(), Status> {
    let (steps, requests) = mpsc::channel(1);
    steps.send(step(prove_request::Step::Hello(hello))).await.unwrap();
    let mut answers = client.prove(ReceiverStream::new(requests)).await?.into_inner();
    let challenge = answers.message().await?.unwrap();
    let Some(prove_response::Step::Challenge(challenge)) = challenge.step else {
        panic!("no challenge: {challenge:?}");
    };
    steps
        .send(step(prove_request::Step::Proof(proof(challenge))))
        .await
        .unwrap();
    answers.message().await?.unwrap();
    Ok(())
}

/// One that has proved that it is node 1.
pub(super) async fn raw_proved(node: &Node) -> PeerServiceClient<Channel> {
    let mut client = raw(node).await;
    let own = Party {
        node: NodeId(1),
        cluster: 7,
    };
    let (caller, hello) = Caller::hello(None, own, node.peer.node).unwrap();
    prove(&mut client, hello, |challenge| caller.prove(&challenge).unwrap().1)
        .await
        .unwrap();
    client
}
