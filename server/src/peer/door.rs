//! The gRPC service that other nodes call, on one connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use boltq_proto::internal::v1::peer_service_server::PeerService;
use boltq_proto::internal::v1::{
    ExchangeRequest, ExchangeResponse, IdentifyRequest, IdentifyResponse, ProveRequest, ProveResponse, TransferRequest,
    TransferResponse, prove_request, prove_response,
};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, warn};

use super::budget::Budget;
use super::listen::Gate;
use super::proof::{Called, Party, ProofError};
use super::shared::Shared;
use super::{exchange, transfer};

/// Refusals are counted all, and shown at most this often: whoever reaches the port could fill the log.
const WARN_EVERY_SECONDS: u64 = 10;

impl From<ProofError> for Status {
    fn from(error: ProofError) -> Self {
        match error {
            ProofError::Malformed => Self::invalid_argument(error.to_string()),
            ProofError::Secret => Self::unauthenticated(error.to_string()),
            ProofError::Random => Self::internal(error.to_string()),
            ProofError::NoSecretHere
            | ProofError::Version(_)
            | ProofError::OtherNode { .. }
            | ProofError::OtherCluster { .. } => Self::failed_precondition(error.to_string()),
        }
    }
}

/// See the module.
#[derive(Clone)]
pub(super) struct Door {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    budget: Arc<Budget>,
}

impl Door {
    pub(super) fn new(shared: Arc<Shared>, gate: Arc<Gate>) -> Self {
        let budget = exchange::budget(&shared.dialer.limits);
        Self { shared, gate, budget }
    }

    fn proved(&self) -> Result<(), Status> {
        if self.gate.is_open() {
            return Ok(());
        }
        Err(Status::unauthenticated("this connection has not proved itself"))
    }

    fn accept(&self, called: Called, step: prove_request::Step) -> Result<ProveResponse, Status> {
        let prove_request::Step::Proof(proof) = step else {
            return Err(ProofError::Malformed.into());
        };
        let info = (self.shared.dialer.info)();
        let own = Party {
            node: info.node,
            cluster: info.cluster,
        };
        let (caller, proof) = called
            .accept(self.shared.dialer.secret.as_ref(), own, &proof)
            .inspect_err(warn_refused)?;
        if !self.gate.open() {
            return Err(Status::resource_exhausted("too many connections from peers"));
        }
        debug!(node = format_args!("{:016x}", caller.node.0), "a peer connected");
        self.shared.heard(caller.node);
        Ok(answer(prove_response::Step::Proof(proof)))
    }
}

fn answer(step: prove_response::Step) -> ProveResponse {
    ProveResponse { step: Some(step) }
}

fn warn_refused(error: &ProofError) {
    static STARTED: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = STARTED.elapsed().as_secs();
    let next = NEXT.load(Ordering::Relaxed);
    let claimed = NEXT.compare_exchange(next, now + WARN_EVERY_SECONDS, Ordering::Relaxed, Ordering::Relaxed);
    if now >= next && claimed.is_ok() {
        warn!(%error, "a connection from another node is refused");
    }
}

async fn step(steps: &mut Streaming<ProveRequest>) -> Result<prove_request::Step, Status> {
    let request = steps.message().await?;
    Ok(request.and_then(|request| request.step).ok_or(ProofError::Malformed)?)
}

#[tonic::async_trait]
impl PeerService for Door {
    type ProveStream = BoxStream<'static, Result<ProveResponse, Status>>;
    type ExchangeStream = BoxStream<'static, Result<ExchangeResponse, Status>>;

    async fn prove(&self, request: Request<Streaming<ProveRequest>>) -> Result<Response<Self::ProveStream>, Status> {
        let mut steps = request.into_inner();
        let prove_request::Step::Hello(hello) = step(&mut steps).await? else {
            return Err(ProofError::Malformed.into());
        };
        let (called, challenge) = Called::challenge(&hello)?;
        let challenge = answer(prove_response::Step::Challenge(challenge));
        let door = self.clone();
        let proof = async move { door.accept(called, step(&mut steps).await?) };
        let answers = stream::iter([Ok(challenge)]).chain(stream::once(proof));
        Ok(Response::new(answers.boxed()))
    }

    async fn identify(&self, _request: Request<IdentifyRequest>) -> Result<Response<IdentifyResponse>, Status> {
        self.proved()?;
        Ok(Response::new((self.shared.dialer.info)().into()))
    }

    async fn exchange(
        &self,
        request: Request<Streaming<ExchangeRequest>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        self.proved()?;
        let answers = exchange::serve(self.shared.clone(), self.budget.clone(), request.into_inner());
        Ok(Response::new(answers))
    }

    async fn transfer(
        &self,
        request: Request<Streaming<TransferRequest>>,
    ) -> Result<Response<TransferResponse>, Status> {
        self.proved()?;
        transfer::receive(&self.shared, request.into_inner())
            .await
            .map(Response::new)
    }
}
