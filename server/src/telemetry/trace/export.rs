//! Hands spans to the collector.
//!
//! One call at a time, with what has gathered in the second before it. While the collector is away, one batch is in hand and is
//! tried again; what comes meanwhile waits in the queue of the [`Tracer`], and is dropped there when that is full. So a collector
//! that hangs or is gone costs a bounded amount of memory and nobody's time.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::otlp;
use super::span::Span;
use super::tracer::Tracer;
use crate::config::Collector;

/// Spans of one call.
const BATCH_MAX: usize = 512;
/// What gathers while so long nothing is sent.
const GATHER: Duration = Duration::from_secs(1);
/// For a connection to be there.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// For a call to be answered.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Between two attempts; doubles up to the second.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The task that hands spans on.
#[derive(Debug)]
pub struct Exporter {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Exporter {
    /// Begins to hand spans of the tracer that it returns to a collector. `ratio` is the part of the traces that begin here.
    ///
    /// # Errors
    /// The address is none.
    pub fn start(
        collector: &Collector,
        (service_name, instance): (&str, &str),
        ratio: f64,
    ) -> Result<(Tracer, Self), tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(collector.url.clone())?;
        let channel = endpoint.connect_timeout(CONNECT_MAX).timeout(CALL_MAX).connect_lazy();
        let (tracer, spans) = Tracer::new(ratio);
        let stop = CancellationToken::new();
        let sender = Sender {
            client: TraceServiceClient::new(channel),
            url: collector.url.clone(),
            resource: otlp::resource(service_name, instance),
            tracer: tracer.clone(),
            stop: stop.clone(),
            failing: false,
        };
        let task = tokio::spawn(sender.run(spans));
        Ok((tracer, Self { task, stop }))
    }

    /// Hands on what waits, and ends. What the collector has not taken by then is given up.
    pub async fn finish(mut self, within: Duration) {
        self.stop.cancel();
        if timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the collector of traces did not take the last ones in time");
        }
    }
}

struct Sender {
    client: TraceServiceClient<Channel>,
    url: String,
    resource: Resource,
    tracer: Tracer,
    stop: CancellationToken,
    /// The last call failed.
    failing: bool,
}

impl Sender {
    async fn run(mut self, mut spans: mpsc::Receiver<Span>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            tokio::select! {
                // What was put there before the end comes first.
                biased;
                _ = spans.recv_many(&mut batch, 1) => {}
                () = self.stop.cancelled() => return,
            }
            if spans.len() < BATCH_MAX {
                tokio::select! {
                    () = sleep(GATHER) => {}
                    () = self.stop.cancelled() => {}
                }
            }
            while batch.len() < BATCH_MAX
                && let Ok(span) = spans.try_recv()
            {
                batch.push(span);
            }
            self.send(&batch).await;
            batch.clear();
        }
    }

    /// Tries until the collector has them, or it makes no sense.
    async fn send(&mut self, batch: &[Span]) {
        let counts = self.tracer.counts().clone();
        let mut wait = RETRY_FIRST;
        loop {
            let request = otlp::request(&self.resource, batch);
            let status = match self.client.export(request).await {
                Ok(response) => {
                    let refused = response.into_inner().partial_success.unwrap_or_default();
                    let count = usize::try_from(refused.rejected_spans).unwrap_or(0).min(batch.len());
                    counts.dropped.add(count);
                    counts.exported.add(batch.len() - count);
                    if count > 0 {
                        tracing::warn!(count, reason = refused.error_message, "the collector refused spans");
                    }
                    if std::mem::take(&mut self.failing) {
                        tracing::info!(collector = self.url, "the collector takes traces again");
                    }
                    return;
                }
                Err(status) => status,
            };
            if !std::mem::replace(&mut self.failing, true) {
                tracing::warn!(collector = self.url, error = %status, "the collector does not take traces");
            }
            if !is_worth_another_try(&status) || self.stop.is_cancelled() {
                counts.dropped.add(batch.len());
                return;
            }
            tokio::select! {
                () = sleep(wait) => {}
                // One more try at once, and no other.
                () = self.stop.cancelled() => {}
            }
            wait = (wait * 2).min(RETRY_MAX);
        }
    }
}

/// What OTLP calls retryable, and calls that were not answered.
fn is_worth_another_try(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted
            | Code::Unknown
    )
}
