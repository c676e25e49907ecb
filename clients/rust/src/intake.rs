//! What subscriptions and workers read: the deliveries of a queue, over one stream after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use boltq_proto::queue::v1::subscribe_request::Request as Kind;
use boltq_proto::queue::v1::{SubscribeInit, SubscribeRequest, SubscribeResponse, SubscribeStop};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use crate::net::{Attempts, Caller};
use crate::queue::service;
use crate::stream::{Items, Opening, Source};
use crate::wire::duration;
use crate::{Client, Delivery, Result, SubscribeOptions};

/// One that opens a stream, and one that ends its deliveries.
const REQUESTS_MAX: usize = 2;

/// What comes.
pub(crate) enum Taken {
    Delivery(Delivery),
    /// The stream broke: the leases of what came over it have ended, or do so when the server notices.
    Broken,
}

/// Deliveries, until it is dropped. Then their leases end.
pub(crate) struct Intake {
    taken: BoxStream<'static, Result<Taken>>,
    stopping: Arc<Stopping>,
}

impl Intake {
    pub(crate) fn new(client: Client, queue: String, options: SubscribeOptions, attempts: Attempts) -> Self {
        let caller = client.caller().clone();
        let stopping = Arc::default();
        let source = Deliveries {
            client,
            queue,
            options,
            stopping: Arc::clone(&stopping),
        };
        Self {
            taken: Items::new(caller, source, attempts).boxed(),
            stopping,
        }
    }

    /// Asks for no more. What was delivered stays leased, and what was on its way can still come.
    pub(crate) fn stop(&self) {
        self.stopping.stop();
    }

    /// The next; `None` after a failure. Nothing is lost if this is given up.
    pub(crate) async fn next(&mut self) -> Option<Result<Taken>> {
        self.taken.next().await
    }

    /// Deliveries alone, for who need not know that a stream broke.
    pub(crate) fn deliveries(self) -> BoxStream<'static, Result<Delivery>> {
        let delivery = |taken| async move {
            match taken {
                Ok(Taken::Delivery(delivery)) => Some(Ok(delivery)),
                Ok(Taken::Broken) => None,
                Err(error) => Some(Err(error)),
            }
        };
        self.taken.filter_map(delivery).boxed()
    }
}

/// Whether deliveries are to end, and the way to say so on the stream that is open.
#[derive(Default)]
struct Stopping {
    state: Mutex<StoppingState>,
}

#[derive(Default)]
struct StoppingState {
    stopped: bool,
    requests: Option<mpsc::WeakSender<SubscribeRequest>>,
}

impl Stopping {
    fn stop(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stopped = true;
        if let Some(requests) = state.requests.as_ref().and_then(mpsc::WeakSender::upgrade) {
            send_stop(&requests);
        }
    }

    fn opens(&self, requests: &mpsc::Sender<SubscribeRequest>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests = Some(requests.downgrade());
        if state.stopped {
            send_stop(requests);
        }
    }
}

fn send_stop(requests: &mpsc::Sender<SubscribeRequest>) {
    // There is room, or the stream has ended, or it was said before.
    let _ = requests.try_send(SubscribeRequest {
        request: Some(Kind::Stop(SubscribeStop {})),
    });
}

/// A queue.
struct Deliveries {
    client: Client,
    queue: String,
    options: SubscribeOptions,
    stopping: Arc<Stopping>,
}

impl Source for Deliveries {
    type Response = SubscribeResponse;
    type Item = Taken;
    /// The server ends the subscription when this side is closed.
    type Kept = mpsc::Sender<SubscribeRequest>;

    fn open(&self, _again: bool, channel: Channel, caller: &Caller) -> Opening<Self::Response, Self::Kept> {
        let init = SubscribeInit {
            queue: self.queue.clone(),
            max_in_flight: self.options.max_in_flight,
            max_batch: self.options.max_batch,
            lease: self.options.lease.map(duration),
        };
        let (kept, requests) = mpsc::channel(REQUESTS_MAX);
        let first = SubscribeRequest {
            request: Some(Kind::Init(init)),
        };
        // There is room.
        let _ = kept.try_send(first);
        self.stopping.opens(&kept);
        let request = caller.request(ReceiverStream::new(requests));
        Box::pin(async move {
            let response = service(channel).subscribe(request).await?;
            Ok(response.map(|responses| (responses, kept)))
        })
    }

    fn read(&mut self, response: SubscribeResponse, items: &mut VecDeque<Taken>) {
        let settler = self.client.settler();
        let new = response.deliveries.into_iter();
        items.extend(new.map(|wire| Taken::Delivery(Delivery::new(wire, settler.clone()))));
    }

    fn broken(&self) -> Option<Taken> {
        Some(Taken::Broken)
    }
}
