//! Asking the seeds to be let in.
//!
//! Seeds are admin addresses, as that is what operators know. A node that is in the cluster already asks too, once: its
//! addresses may have changed. It says so, so that it does not come again if it was removed meanwhile. It never gives up: a
//! cluster that cannot be reached now may be tomorrow, and until then this node must not serve as if it were alone.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;

use super::Cluster;
use crate::tls::Dialer;

/// Others may still be starting.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The pause after a round in which nobody let this node in doubles up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For one seed to answer: it may have to find its leader first.
const SEED_MAX: Duration = Duration::from_secs(15);
/// For one seed to say whether it belongs to a cluster.
const LOOK_MAX: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Whom to ask, and how.
#[derive(Clone)]
pub struct SeedPlan {
    /// Admin addresses, host and port.
    pub seeds: Vec<String>,
    /// Sent as `X-API-Key`, if there is one.
    pub api_key: Option<String>,
    /// How they are dialled.
    pub dialer: Dialer,
    /// Before the first round.
    pub first_pause: Duration,
    /// This node has been in the cluster, so it does not ask to be let in.
    pub refresh: bool,
}

impl SeedPlan {
    /// With the usual pause before the first round.
    #[must_use]
    pub fn new(seeds: Vec<String>, api_key: Option<String>, dialer: Dialer, refresh: bool) -> Self {
        Self {
            seeds,
            api_key,
            dialer,
            first_pause: FIRST_PAUSE,
            refresh,
        }
    }
}

/// How seeds are asked.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    api_key: Option<&'a str>,
    dialer: &'a Dialer,
}

impl SeedPlan {
    pub(super) fn way(&self) -> Way<'_> {
        Way {
            api_key: self.api_key.as_deref(),
            dialer: &self.dialer,
        }
    }
}

/// Asks until one of the seeds has let this node in.
pub(super) async fn join(cluster: Arc<Cluster>, plan: SeedPlan, stop: CancellationToken) {
    let mut pause = plan.first_pause;
    for round in 1_u64.. {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        for seed in &plan.seeds {
            let asked = tokio::select! {
                () = stop.cancelled() => return,
                asked = tokio::time::timeout(SEED_MAX, ask(&cluster, seed, &plan)) => asked,
            };
            match asked.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
                Ok(Asked::Joined) => {
                    tracing::info!(seed, "joined the cluster");
                    return;
                }
                Ok(Asked::Removed) => {
                    cluster.departure.be_removed().await;
                    return;
                }
                Err(why) => tracing::warn!(seed, round, why, "not let into the cluster; going on"),
            }
        }
        pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }
}

enum Asked {
    Joined,
    Removed,
}

async fn ask(cluster: &Cluster, seed: &str, plan: &SeedPlan) -> Result<Asked, String> {
    let body = serde_json::json!({
        "node_id": cluster.me.name,
        "addr": cluster.me.raft,
        "meta_addr": cluster.me.raft,
        "non_voter": !cluster.me.voter,
        "refresh": plan.refresh,
    });
    let (status, answer) = send(
        seed,
        hyper::Request::post("/cluster/join"),
        plan.way(),
        body.to_string(),
    )
    .await?;
    match status {
        hyper::StatusCode::OK => return Ok(Asked::Joined),
        hyper::StatusCode::GONE if plan.refresh => return Ok(Asked::Removed),
        _ => {}
    }
    Err(format!("{status}: {}", String::from_utf8_lossy(&answer).trim_end()))
}

/// Where the node with this admin address says that other nodes reach it.
pub(super) async fn raft_address_of(seed: &str, way: Way<'_>) -> Option<String> {
    let status = status_of(seed, way).await?;
    Some(status.pointer("/cluster/raft_addr")?.as_str()?.to_owned())
}

async fn status_of(seed: &str, way: Way<'_>) -> Option<serde_json::Value> {
    let request = hyper::Request::get("/cluster/status");
    let answer = tokio::time::timeout(LOOK_MAX, send(seed, request, way, String::new())).await;
    serde_json::from_slice(&answer.ok()?.ok()?.1).ok()
}

/// Whether one of the seeds says that it belongs to a cluster. One that does not answer says nothing.
///
/// A node that is to found a cluster and has no data asks this first: it may have founded one already and lost its disk,
/// and a second cluster beside the first would acknowledge what the first never sees.
pub async fn somebody_has_a_cluster(seeds: &[String], api_key: Option<&str>, dialer: &Dialer) -> bool {
    for seed in seeds {
        let status = status_of(seed, Way { api_key, dialer }).await;
        let cluster = status
            .as_ref()
            .and_then(|status| status.pointer("/cluster/cluster_id")?.as_str());
        if let Some(cluster) = cluster.filter(|cluster| !cluster.is_empty()) {
            tracing::warn!(
                seed,
                cluster,
                "there is a cluster already: joining it instead of founding another one"
            );
            return true;
        }
    }
    false
}

async fn send(
    address: &str,
    request: http::request::Builder,
    Way { api_key, dialer }: Way<'_>,
    body: String,
) -> Result<(hyper::StatusCode, Bytes), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stream = dialer.http1(address).await.map_err(|error| text(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| text(&error))?;
    let mut request = request
        .header(hyper::header::HOST, address)
        .header(hyper::header::CONTENT_TYPE, "application/json");
    if let Some(key) = api_key {
        request = request.header("x-api-key", key);
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| text(&error))?;
    // It ends with the sender; what goes wrong with it, the sender says.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| text(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await.map_err(|error| text(&error))?;
    Ok((status, body.to_bytes()))
}
