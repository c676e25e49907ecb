//! A collector of traces: the service that OTLP defines, which keeps what it gets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boltq_tests::harness::eventually_async;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// For spans to come.
const WITHIN: Duration = Duration::from_secs(30);

/// A span with what stood around it.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) span: Span,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) resource: BTreeMap<String, String>,
}

impl Told {
    pub(crate) fn trace(&self) -> String {
        hex(&self.span.trace_id)
    }

    pub(crate) fn id(&self) -> String {
        hex(&self.span.span_id)
    }

    pub(crate) fn parent(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    /// Trace and span of each link.
    pub(crate) fn links(&self) -> Vec<(String, String)> {
        let links = self.span.links.iter();
        links.map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect()
    }
}

#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<Told>>>);

#[tonic::async_trait]
impl TraceService for Kept {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut kept = self.0.lock().unwrap();
        for of_resource in request.into_inner().resource_spans {
            let resource = texts(&of_resource.resource.unwrap_or_default().attributes);
            for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                kept.push(Told {
                    attributes: texts(&span.attributes),
                    resource: resource.clone(),
                    span,
                });
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector that listens.
pub(crate) struct Collector {
    address: SocketAddr,
    kept: Kept,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::over(listener)
    }

    /// At an address where there was none.
    pub(crate) async fn start_at(address: SocketAddr) -> Self {
        Self::over(TcpListener::bind(address).await.unwrap())
    }

    fn over(listener: TcpListener) -> Self {
        let (address, kept) = (listener.local_addr().unwrap(), Kept::default());
        let service = TraceServiceServer::new(kept.clone());
        let serving = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { address, kept }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was told so far.
    pub(crate) fn told(&self) -> Vec<Told> {
        self.kept.0.lock().unwrap().clone()
    }

    /// Waits for so many spans, and returns all that there are, in the order in which they came.
    pub(crate) async fn spans(&self, count: usize) -> Vec<Told> {
        let what = format!("{count} spans");
        eventually_async(WITHIN, &what, async || {
            let told = self.told();
            (told.len() >= count).then_some(told)
        })
        .await
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| {
        let value = match attribute.value.as_ref()?.value.as_ref()? {
            any_value::Value::StringValue(text) => text.clone(),
            any_value::Value::IntValue(number) => number.to_string(),
            other => format!("{other:?}"),
        };
        Some((attribute.key.clone(), value))
    };
    attributes.iter().filter_map(text).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
