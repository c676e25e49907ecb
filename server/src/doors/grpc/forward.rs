//! Any node takes any call: what only the leader can do is passed on to it, streams included.
//!
//! The call is not looked into. It goes to the messaging port of the leader with all its metadata, so the leader checks the
//! API key by the same rule as this node has. A call that was passed on once is not passed on again: the second node would know as
//! little as the first, so the caller is told to try again.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use boltq_proto::topic::v1::SubscribeRequest;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::Message;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tower::{Layer, Service, service_fn};

use super::error::invalid;
use crate::service::{Queues, ServiceError};
use crate::telemetry::{DoorMetrics, ForwardCounts};
use crate::tls::{Dialer, Stream};

/// Marks a call that a node has passed on.
const FORWARDED: &str = "boltq-forwarded";
/// For a connection to the leader to be there.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How often a call that was passed on looks whether the leader is still the same.
const LOOK: Duration = Duration::from_millis(100);
/// A leader that does not answer a ping is gone.
const PING_INTERVAL: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// What may be under way on one stream, and on the connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Connections to former leaders that are kept.
const CHANNELS_MAX: usize = 8;

/// Services of the queue plane, that of the cache last, and what every replica answers itself of each.
const SERVICES: [(&str, &[&str]); 4] = [
    ("/boltq.queue.v1.QueueService/", &["ListQueues", "GetQueue", "Peek"]),
    ("/boltq.exchange.v1.ExchangeService/", &["List", "ListBindings"]),
    (
        "/boltq.topic.v1.TopicService/",
        &["Subscribe", "ListTopics", "ListSubscriptions"],
    ),
    ("/boltq.kv.v1.KvService/", &["GetStats", "Watch"]),
];
/// Any node can do it, unless it is to be durable.
const SUBSCRIBE: &str = "/boltq.topic.v1.TopicService/Subscribe";
/// Names need less.
const SUBSCRIBE_BYTES_MAX: usize = 16 << 10;
/// Of a message on the wire: whether it is compressed, and its length.
const FRAME_HEADER_BYTES: usize = 5;

/// Whether only the leader can do it. Without a cache nobody is asked for it.
fn needs_leader(path: &str, cache: bool) -> bool {
    let services = &SERVICES[..SERVICES.len() - usize::from(!cache)];
    services.iter().any(|(service, local)| {
        path.strip_prefix(service)
            .is_some_and(|method| !local.contains(&method))
    })
}

/// Wraps the services of a node.
#[derive(Clone)]
pub(super) struct ForwardLayer {
    queues: Queues,
    /// Whether there is a cache.
    cache: bool,
    leaders: Arc<Leaders>,
    metrics: Arc<DoorMetrics>,
}

impl ForwardLayer {
    pub(super) fn new(queues: Queues, cache: bool, dialer: Dialer, metrics: Arc<DoorMetrics>) -> Self {
        Self {
            queues,
            cache,
            leaders: Arc::new(Leaders {
                dialer,
                channels: Mutex::default(),
            }),
            metrics,
        }
    }
}

impl<S> Layer<S> for ForwardLayer {
    type Service = Forward<S>;

    fn layer(&self, inner: S) -> Forward<S> {
        Forward {
            inner,
            queues: self.queues.clone(),
            cache: self.cache,
            leaders: self.leaders.clone(),
            metrics: self.metrics.clone(),
        }
    }
}

#[derive(Clone)]
pub(super) struct Forward<S> {
    inner: S,
    queues: Queues,
    cache: bool,
    leaders: Arc<Leaders>,
    metrics: Arc<DoorMetrics>,
}

impl<S> Service<Request<Body>> for Forward<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let subscribes = path == SUBSCRIBE;
        let here = !(needs_leader(path, self.cache) || subscribes)
            || self.queues.is_leading()
            || request.headers().contains_key(FORWARDED);
        let leader = if here {
            String::new()
        } else {
            self.queues.leader().messaging
        };
        if leader.is_empty() {
            if !here && !subscribes {
                self.metrics.forwards.no_leader.increment();
            }
            // What only the leader can do, the service refuses.
            return Box::pin(self.inner.call(request));
        }
        let channel = self.leaders.channel(&leader);
        let (queues, metrics) = (self.queues.clone(), self.metrics.clone());
        let waiting = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, waiting);
        Box::pin(async move {
            let request = match subscribes {
                false => request,
                true => match look_whether_durable(request).await {
                    Ok((request, true)) => request,
                    Ok((request, false)) => return inner.call(request).await,
                    Err(status) => return Ok(status.into_http()),
                },
            };
            Ok(pass_on(request, queues, leader, channel, &metrics.forwards).await)
        })
    }
}

/// The only call that is looked into.
async fn look_whether_durable(request: Request<Body>) -> Result<(Request<Body>, bool), Status> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, SUBSCRIBE_BYTES_MAX).await;
    let body = body.map_err(|_| invalid(format!("the request has more than {SUBSCRIBE_BYTES_MAX} bytes")))?;
    // What is no request is refused here, as anywhere.
    let durable = body
        .get(FRAME_HEADER_BYTES..)
        .is_some_and(|message| SubscribeRequest::decode(message).is_ok_and(|subscribe| subscribe.durable));
    Ok((Request::from_parts(head, Body::from(body)), durable))
}

async fn pass_on(
    request: Request<Body>,
    queues: Queues,
    leader: String,
    channel: Result<Channel, String>,
    counts: &ForwardCounts,
) -> Response<Body> {
    counts.sent.increment();
    let failed = |why: &dyn std::fmt::Display, status: Status| {
        counts.failed.increment();
        tracing::debug!(leader, %why, "a call could not be passed on");
        status.into_http::<Body>()
    };
    // Nothing has left this node.
    let not_sent = |why: &dyn std::fmt::Display| failed(why, queues.not_leader().into());
    // The leader may have got it.
    let not_answered = |why: &dyn std::fmt::Display| failed(why, leader_lost(&leader));
    let mut channel = match channel {
        Ok(channel) => channel,
        Err(why) => return not_sent(&why),
    };
    let (mut head, body) = request.into_parts();
    head.headers.insert(FORWARDED, HeaderValue::from_static("1"));
    let request = Request::from_parts(head, tonic::body::Body::new(body));
    if let Err(error) = std::future::poll_fn(|context| channel.poll_ready(context)).await {
        return not_sent(&error);
    }
    let answer = tokio::select! {
        answer = channel.call(request) => answer,
        () = no_longer_leads(&queues, &leader) => return not_answered(&"it no longer leads"),
    };
    match answer {
        Ok(response) => response.map(|body| {
            let leader = leader.clone();
            Body::new(UntilItEnds {
                body,
                ended: Some(Box::pin(async move {
                    no_longer_leads(&queues, &leader).await;
                    leader_lost(&leader)
                })),
            })
        }),
        Err(error) => not_answered(&error),
    }
}

fn leader_lost(leader: &str) -> Status {
    Status::from(ServiceError::LeaderLost {
        leader: leader.to_owned(),
    })
}

/// Returns when this node no longer takes that one for the leader: a node that hangs does not say so itself.
async fn no_longer_leads(queues: &Queues, leader: &str) {
    loop {
        tokio::time::sleep(LOOK).await;
        if queues.leader().messaging != leader {
            return;
        }
    }
}

/// An answer that ends with a status when the leader that gives it no longer leads.
struct UntilItEnds<B> {
    body: B,
    ended: Option<BoxFuture<'static, Status>>,
}

impl<B: hyper::body::Body + Unpin> hyper::body::Body for UntilItEnds<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<B::Data>, B::Error>>> {
        let Some(ended) = &mut self.ended else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(status) = ended.as_mut().poll(context) {
            self.ended = None;
            let mut trailers = http::HeaderMap::new();
            // Only a status with bytes that no header can have is refused, and this one has none.
            let written = status.add_header(&mut trailers);
            return Poll::Ready(written.is_ok().then(|| Ok(hyper::body::Frame::trailers(trailers))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.ended.is_none() || self.body.is_end_stream()
    }
}

/// Connections to those that lead or led.
struct Leaders {
    dialer: Dialer,
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl Leaders {
    fn channel(&self, address: &str) -> Result<Channel, String> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
        let channel = endpoint
            .connect_timeout(CONNECT_MAX)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .connect_with_connector_lazy(self.connector(address));
        if channels.len() >= CHANNELS_MAX {
            channels.clear();
        }
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    /// Encrypted or not is below HTTP, which does not know.
    fn connector(
        &self,
        address: &str,
    ) -> impl Service<Uri, Response = TokioIo<Stream>, Error = std::io::Error, Future = impl Send + use<>>
    + Send
    + 'static
    + use<> {
        let (dialer, address) = (self.dialer.clone(), address.to_owned());
        service_fn(move |_: Uri| {
            let (dialer, address) = (dialer.clone(), address.clone());
            async move { dialer.http2(&address).await.map(TokioIo::new) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_replicas_stay() {
        for method in ["Publish", "PublishStream", "Consume", "Subscribe", "Ack", "PurgeQueue"] {
            assert!(needs_leader(&format!("{}{method}", SERVICES[0].0), true), "{method}");
        }
        for path in [
            "/boltq.queue.v1.QueueService/GetQueue",
            "/boltq.queue.v1.QueueService/Peek",
            "/grpc.health.v1.Health/Check",
            "/",
        ] {
            assert!(!needs_leader(path, true), "{path}");
        }
        for (method, leader) in [("Get", true), ("Set", true), ("Watch", false), ("GetStats", false)] {
            let path = format!("{}{method}", SERVICES[3].0);
            assert_eq!((needs_leader(&path, true), needs_leader(&path, false)), (leader, false));
        }
    }
}
