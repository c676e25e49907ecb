//! The connection to one peer, as callers see it: requests go into a queue, one task connects and carries them.
//!
//! ```text
//!        call                    connected                     broken after use, or idle
//! Idle ────────► Connecting ───────────────► Connected ─────────────────────────────────► Idle
//!                    │ failed
//!                    └────────► Waiting: calls fail at once, until the backoff is over or the peer calls us
//! ```
//!
//! Requests stay in the queue until HTTP/2 has room for them; a call that ends before takes its request out. So what a
//! peer that hangs costs is bounded by the budget, and when it returns it is not flooded with what nobody waits for.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use boltq_proto::internal::v1::{ExchangeRequest, ExchangeResponse, exchange_request, exchange_response};
use boltq_raft::{Peer, TransportError};
use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::backoff;
use super::budget::{Budget, Room, Target};
use super::config::{CONNECT_MAX, SILENCE_MAX, WITHIN_MAX};
use super::dial::{Connection, Dialer, Use, message};
use super::metrics::Open;

type Answer = Result<Bytes, TransportError>;
/// Requests to groups overtake those to services; otherwise they go in order.
type Place = (bool, u64);

/// See the module.
pub(super) struct Link {
    peer: Peer,
    dialer: Arc<Dialer>,
    runtime: Handle,
    stop: CancellationToken,
    budget: Arc<Budget>,
    state: Mutex<State>,
    /// Tells the task that the peer does not answer.
    silent: Notify,
}

struct State {
    phase: Phase,
    /// Of connections; what belongs to an old one finds nothing to do.
    generation: u64,
    next_id: u64,
    /// Not yet taken by HTTP/2.
    queue: BTreeMap<Place, ExchangeRequest>,
    /// Who waits for the answers, to the queued ones too.
    callers: HashMap<u64, oneshot::Sender<Answer>>,
    /// Waits for something in the queue.
    waker: Option<Waker>,
    failures: u32,
    /// The last reason that was shown as a warning, until it is over.
    warned: Option<String>,
    called: Instant,
    /// The first call since something was answered.
    unanswered_since: Option<Instant>,
}

enum Phase {
    Idle,
    Connecting,
    Connected,
    Waiting { until: Instant, why: String },
}

/// How a connection ended.
enum End {
    Idle,
    Broken(String),
}

impl Link {
    pub(super) fn new(peer: Peer, dialer: Arc<Dialer>, runtime: Handle, stop: CancellationToken) -> Arc<Self> {
        let limits = dialer.limits;
        Arc::new(Self {
            peer,
            dialer,
            runtime,
            stop,
            budget: Budget::new(limits.outstanding_requests_max, limits.outstanding_bytes_max),
            state: Mutex::new(State {
                phase: Phase::Idle,
                generation: 0,
                next_id: 1,
                queue: BTreeMap::new(),
                callers: HashMap::new(),
                waker: None,
                failures: 0,
                warned: None,
                called: Instant::now(),
                unanswered_since: None,
            }),
            silent: Notify::new(),
        })
    }

    pub(super) fn address(&self) -> &str {
        &self.peer.address
    }

    /// Whether nobody would miss it.
    pub(super) fn is_idle(&self) -> bool {
        self.idle_from(&self.state.lock()) <= Instant::now()
    }

    /// The peer has called us, so it is there: the next call connects at once.
    pub(super) fn heard(&self) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Waiting { .. }) {
            state.phase = Phase::Idle;
            state.failures = 0;
        }
    }

    /// Queues a request before it returns, so that those of one caller keep their order.
    pub(super) fn call(
        self: &Arc<Self>,
        target: Target,
        payload: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Answer> {
        match self.enqueue(target, payload, within.min(WITHIN_MAX)) {
            Ok(call) => Box::pin(call.answer()),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn enqueue(self: &Arc<Self>, target: Target, payload: Bytes, within: Duration) -> Result<Call, TransportError> {
        let metrics = &self.dialer.metrics;
        metrics.calls.add(1);
        let bytes = payload.len();
        if bytes > self.dialer.limits.message_bytes_max {
            let max = self.dialer.limits.message_bytes_max;
            return Err(self.unreachable(format!("a request of {bytes} bytes; at most {max} are sent")));
        }
        let Some(room) = self.budget.take(target, bytes) else {
            metrics.overloaded.add(1);
            return Err(self.unreachable("overloaded: too many calls wait for an answer".to_owned()));
        };
        let now = Instant::now();
        let mut state = self.state.lock();
        let connect = match &state.phase {
            Phase::Waiting { until, why } if now < *until => return Err(self.unreachable(why.clone())),
            Phase::Waiting { .. } | Phase::Idle => true,
            Phase::Connecting | Phase::Connected => false,
        };
        if self.stop.is_cancelled() {
            return Err(self.unreachable("this node stops".to_owned()));
        }
        if connect {
            state.phase = Phase::Connecting;
        }
        let id = state.next_id;
        state.next_id += 1;
        let place = (matches!(target, Target::Service(_)), id);
        state.queue.insert(place, request(id, target, payload, within));
        let (sender, answer) = oneshot::channel();
        state.callers.insert(id, sender);
        state.called = now;
        state.unanswered_since.get_or_insert(now);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if connect {
            self.runtime.spawn(self.clone().run());
        }
        Ok(Call {
            link: self.clone(),
            place,
            answer,
            deadline: now + within,
            _room: room,
        })
    }

    fn unreachable(&self, why: String) -> TransportError {
        TransportError::Unreachable {
            peer: self.peer.clone(),
            why,
        }
    }

    /// From the first call to the end of the connection.
    async fn run(self: Arc<Self>) {
        let dialed = tokio::select! {
            () = self.stop.cancelled() => return self.failed("this node stops".to_owned()),
            dialed = self.dialer.dial(&self.peer.address, self.peer.node, Use::Calls) => dialed,
        };
        match dialed {
            Err(error) => self.failed(error.to_string()),
            Ok(connection) => {
                let _open = Open::new(&self.dialer.metrics.outgoing_open);
                let end = self.serve(connection).await;
                self.ended(end);
            }
        }
    }

    /// Nothing was sent. Worth a line unless it is what failed before.
    fn failed(&self, why: String) {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        if state.warned.as_ref() == Some(&why) {
            debug!(peer = %self.peer, why, failures = state.failures, "cannot connect");
        } else {
            warn!(peer = %self.peer, why, "cannot connect; trying again when there is something to send");
            state.warned = Some(why.clone());
        }
        self.fail_callers(&mut state, &why);
        state.phase = Phase::Waiting {
            until: Instant::now() + backoff::after(state.failures),
            why,
        };
    }

    /// A connection that never answered anything counts as a failure to connect.
    fn ended(&self, end: End) {
        let mut state = self.state.lock();
        match end {
            End::Idle => {}
            End::Broken(why) => {
                if state.warned.as_ref() == Some(&why) {
                    debug!(peer = %self.peer, why, "the connection broke again");
                } else {
                    info!(peer = %self.peer, why, "the connection broke");
                    state.warned = Some(why.clone());
                }
                self.dialer.metrics.breaks.add(1);
                self.fail_callers(&mut state, &why);
                state.phase = if state.failures == 0 {
                    Phase::Idle
                } else {
                    Phase::Waiting {
                        until: Instant::now() + backoff::after(state.failures),
                        why,
                    }
                };
            }
        }
    }

    /// Those whose request was not sent are told so.
    fn fail_callers(&self, state: &mut State, why: &str) {
        state.generation += 1;
        state.waker = None;
        state.unanswered_since = None;
        for (_, request) in std::mem::take(&mut state.queue) {
            if let Some(caller) = state.callers.remove(&request.id) {
                let _gone = caller.send(Err(self.unreachable(why.to_owned())));
            }
        }
        for (_, caller) in std::mem::take(&mut state.callers) {
            let _gone = caller.send(Err(TransportError::Broken {
                peer: self.peer.clone(),
                why: why.to_owned(),
            }));
        }
    }

    async fn serve(self: &Arc<Self>, mut connection: Connection) -> End {
        let generation = {
            let mut state = self.state.lock();
            state.phase = Phase::Connected;
            state.unanswered_since = (!state.callers.is_empty()).then(Instant::now);
            // Taken back by the first answer.
            state.failures = state.failures.saturating_add(1);
            state.generation
        };
        debug!(peer = %self.peer, "connected");
        let requests = Outgoing {
            link: self.clone(),
            generation,
        };
        let mut answers = match timeout(CONNECT_MAX, connection.client.exchange(requests)).await {
            Ok(Ok(answers)) => answers.into_inner(),
            Ok(Err(status)) => return End::Broken(message(&status)),
            Err(_) => return End::Broken("it takes no requests".to_owned()),
        };
        let mut stopped = std::pin::pin!(self.stop.cancelled());
        let mut idle = std::pin::pin!(sleep(self.dialer.limits.idle_max));
        loop {
            let answer = tokio::select! {
                biased;
                () = &mut stopped => return End::Broken("this node stops".to_owned()),
                () = self.silent.notified() => {
                    return End::Broken(format!("no answer to anything for {} s", SILENCE_MAX.as_secs()));
                }
                answer = answers.message() => answer,
                () = &mut idle => match self.close_if_idle() {
                    None => return End::Idle,
                    Some(next) => {
                        idle.as_mut().reset(next);
                        continue;
                    }
                },
            };
            match answer {
                Ok(Some(answer)) => self.answered(answer),
                Ok(None) => return End::Broken("the other node closed it".to_owned()),
                Err(status) => return End::Broken(message(&status)),
            }
        }
    }

    /// When it has been idle for long enough, if nothing is called until then.
    fn idle_from(&self, state: &State) -> Instant {
        let last = if state.callers.is_empty() {
            state.called
        } else {
            Instant::now()
        };
        last + self.dialer.limits.idle_max
    }

    /// Under one lock with the check, so that no call slips in between. Otherwise, when to look again.
    fn close_if_idle(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let from = self.idle_from(&state);
        if from > Instant::now() {
            return Some(from);
        }
        state.generation += 1;
        state.waker = None;
        state.failures = 0;
        state.phase = Phase::Idle;
        None
    }

    fn answered(&self, response: ExchangeResponse) {
        let caller = {
            let mut state = self.state.lock();
            state.failures = 0;
            if state.warned.take().is_some() {
                info!(peer = %self.peer, "answers again");
            }
            state.unanswered_since = None;
            state.callers.remove(&response.id)
        };
        // Without one the call has ended before.
        let Some(caller) = caller else { return };
        let answer = match response.result {
            Some(exchange_response::Result::Answer(answer)) => {
                self.dialer.metrics.call_bytes_received.add(answer.len());
                Ok(answer)
            }
            Some(exchange_response::Result::Refusal(why)) => Err(TransportError::Refused {
                peer: self.peer.clone(),
                why,
            }),
            None => Err(TransportError::Refused {
                peer: self.peer.clone(),
                why: "an answer that this version cannot read".to_owned(),
            }),
        };
        let _gone = caller.send(answer);
    }

    /// Drops the connection if the peer has been silent for too long.
    fn timed_out(&self) {
        self.dialer.metrics.timeouts.add(1);
        let state = self.state.lock();
        let silent = state
            .unanswered_since
            .is_some_and(|since| since.elapsed() >= SILENCE_MAX);
        if silent && matches!(state.phase, Phase::Connected) {
            self.silent.notify_waiters();
        }
    }
}

fn request(id: u64, target: Target, payload: Bytes, within: Duration) -> ExchangeRequest {
    ExchangeRequest {
        id,
        target: Some(match target {
            Target::Group(group) => exchange_request::Target::Group(group),
            Target::Service(service) => exchange_request::Target::Service(service),
        }),
        within_ms: u32::try_from(within.as_millis()).unwrap_or(u32::MAX),
        payload,
    }
}

/// One call; takes its request back when it ends early.
struct Call {
    link: Arc<Link>,
    place: Place,
    answer: oneshot::Receiver<Answer>,
    deadline: Instant,
    _room: Room,
}

impl Call {
    async fn answer(mut self) -> Answer {
        match timeout_at(self.deadline, &mut self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(self.link.unreachable("this node stops".to_owned())),
            Err(_) => {
                self.link.timed_out();
                Err(TransportError::TimedOut {
                    peer: self.link.peer.clone(),
                })
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut state = self.link.state.lock();
        if state.callers.remove(&self.place.1).is_some() {
            state.queue.remove(&self.place);
        }
    }
}

/// The queue, as HTTP/2 takes from it.
struct Outgoing {
    link: Arc<Link>,
    generation: u64,
}

impl Stream for Outgoing {
    type Item = ExchangeRequest;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ExchangeRequest>> {
        let mut state = self.link.state.lock();
        if state.generation != self.generation {
            return Poll::Ready(None);
        }
        if let Some((_, request)) = state.queue.pop_first() {
            self.link.dialer.metrics.call_bytes_sent.add(request.payload.len());
            return Poll::Ready(Some(request));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
