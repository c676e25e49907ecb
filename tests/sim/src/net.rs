//! The network: loses, delays, reorders and repeats requests, and has links that are cut in one direction or both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use boltq_core::GroupId;
use boltq_raft::sim::Process;
use boltq_raft::{Peer, Receiver, Transport, TransportError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::random::Random;
use crate::trace::Trace;

/// Second byte of a request that appends entries, see `boltq_raft`'s wire format.
const APPEND: u8 = 1;

/// For a connection to be there, as between real nodes.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// After which a connection sends again what was lost.
const SENT_AGAIN: Duration = Duration::from_millis(500);

/// How bad the network is on links that are not cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) loss_permille: u64,
    pub(crate) repeat_permille: u64,
    pub(crate) delay_ms: (u64, u64),
    pub(crate) reorder: bool,
}

impl Weather {
    pub(crate) const CALM: Self = Self {
        loss_permille: 0,
        repeat_permille: 0,
        delay_ms: (0, 2),
        reorder: false,
    };
}

#[derive(Clone)]
struct End {
    process: Process,
    receiver: Arc<dyn Receiver>,
}

struct Inner {
    random: Random,
    ends: Vec<Option<End>>,
    cut: BTreeSet<(usize, usize)>,
    weather: Weather,
    /// When the last request of a link arrives.
    last: BTreeMap<(usize, usize), Instant>,
    /// The build that counts a learner: its answers stand for those of voters that do not answer.
    impostor: Option<usize>,
    trace: Trace,
}

/// The network of a cluster; clones are the same one.
#[derive(Clone)]
pub(crate) struct Net(Arc<Mutex<Inner>>);

/// What becomes of a message.
enum Fate {
    Lost,
    Arrives(Instant),
}

impl Net {
    pub(crate) fn new(nodes: usize, random: Random, impostor: Option<usize>, trace: Trace) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            random,
            ends: vec![None; nodes],
            cut: BTreeSet::new(),
            weather: Weather::CALM,
            last: BTreeMap::new(),
            impostor,
            trace,
        })))
    }

    pub(crate) fn connect(&self, node: usize, process: Process, receiver: Arc<dyn Receiver>) {
        self.0.lock().ends[node] = Some(End { process, receiver });
    }

    pub(crate) fn disconnect(&self, node: usize) {
        self.0.lock().ends[node] = None;
    }

    /// Lets go of all nodes: they hold their ways, which hold the network.
    pub(crate) fn clear(&self) {
        self.0.lock().ends.fill(None);
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.0.lock().weather = weather;
    }

    /// Cuts links, each in one direction.
    pub(crate) fn cut(&self, links: &[(usize, usize)]) {
        self.0.lock().cut.extend(links);
    }

    /// Mends links.
    pub(crate) fn mend(&self, links: &[(usize, usize)]) {
        self.0.lock().cut.retain(|link| !links.contains(link));
    }

    /// Everything is well.
    pub(crate) fn heal(&self) {
        let mut inner = self.0.lock();
        inner.cut.clear();
        inner.weather = Weather::CALM;
    }

    /// The way from a node.
    pub(crate) fn transport(&self, from: usize) -> Arc<dyn Transport> {
        Arc::new(Port {
            net: self.clone(),
            from,
        })
    }

    /// Who is there, if the link to it is not cut.
    fn end(&self, from: usize, to: usize) -> Option<End> {
        let inner = self.0.lock();
        let open = !inner.cut.contains(&(from, to));
        inner.ends[to].clone().filter(|_| open)
    }

    fn fate(&self, from: usize, to: usize) -> Fate {
        let mut inner = self.0.lock();
        let weather = inner.weather;
        let (min, max) = weather.delay_ms;
        let delay = Duration::from_millis(inner.random.between(min, max + 1));
        let lost = inner.random.permille(weather.loss_permille);
        if lost {
            inner.trace.count("lost");
        }
        if lost || inner.cut.contains(&(from, to)) {
            return Fate::Lost;
        }
        let mut at = Instant::now() + delay;
        if !weather.reorder {
            if let Some(last) = inner.last.get(&(from, to)) {
                at = at.max(*last + Duration::from_millis(1));
            }
            inner.last.insert((from, to), at);
        }
        Fate::Arrives(at)
    }

    /// When the start of a transfer arrives, if a connection for it can be made.
    fn connect_for_transfer(&self, from: usize, to: usize) -> Option<Instant> {
        self.end(from, to)?;
        match self.fate(from, to) {
            Fate::Arrives(at) => Some(at),
            Fate::Lost => None,
        }
    }

    /// As the end of a long transfer does: what gets lost is sent again.
    async fn get_through(&self, from: usize, to: usize) {
        loop {
            if let Fate::Arrives(at) = self.fate(from, to) {
                return sleep_until(at).await;
            }
            sleep(SENT_AGAIN).await;
        }
    }

    fn repeats(&self) -> bool {
        let mut inner = self.0.lock();
        let permille = inner.weather.repeat_permille;
        let repeats = inner.random.permille(permille);
        if repeats {
            inner.trace.count("repeated");
        }
        repeats
    }

    /// Who really gets a request: in the build that counts a learner, the learner, if the voter cannot be reached.
    fn addressee(&self, from: usize, to: usize, request: &Bytes) -> usize {
        let impostor = self.0.lock().impostor;
        match impostor {
            Some(impostor)
                if request.get(1) == Some(&APPEND)
                    && impostor != from
                    && self.end(from, to).is_none()
                    && self.end(from, impostor).is_some() =>
            {
                impostor
            }
            _ => to,
        }
    }

    /// Brings a request and, if somebody waits for it, the answer.
    async fn carry(self, from: usize, to: usize, request: Bytes, at: Instant, answer: Option<Answer>) {
        sleep_until(at).await;
        let Some(end) = self.end(from, to) else { return };
        let answered = end.process.run(end.receiver.receive(request)).await;
        let Some(answer) = answer else { return };
        if let Fate::Arrives(at) = self.fate(to, from) {
            sleep_until(at).await;
            // Whoever asked may wait no more.
            let _ = answer.send(answered);
        }
    }

    /// The chunks of a transfer as they arrive.
    fn chunks(&self, from: usize, to: usize, chunks: Chunks) -> Chunks {
        let start = Some((self.clone(), chunks));
        stream::unfold(start, move |state| async move {
            let (net, mut chunks) = state?;
            let next = chunks.next().await?;
            let fate = net.fate(from, to);
            let Fate::Arrives(at) = fate else {
                return Some((Err("the connection broke".to_owned()), None));
            };
            sleep_until(at).await;
            loop {
                let sender = net.0.lock().ends[from].clone();
                match sender {
                    Some(sender) if sender.process.is_running() => break,
                    Some(_) => sleep(Duration::from_millis(10)).await,
                    None => return Some((Err("the sender is gone".to_owned()), None)),
                }
            }
            Some((next, Some((net, chunks))))
        })
        .boxed()
    }
}

type Chunks = BoxStream<'static, Result<Bytes, String>>;
type Answer = oneshot::Sender<Result<Bytes, String>>;

/// Where a node sends from.
struct Port {
    net: Net,
    from: usize,
}

fn index(peer: &Peer) -> usize {
    usize::try_from(peer.node.0.saturating_sub(1)).unwrap_or(usize::MAX)
}

async fn wait(
    peer: Peer,
    answer: oneshot::Receiver<Result<Bytes, String>>,
    within: Duration,
) -> Result<Bytes, TransportError> {
    let deadline = Instant::now() + within;
    match timeout_at(deadline, answer).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(why))) => Err(TransportError::Refused { peer, why }),
        Ok(Err(_)) => {
            // Nobody noticed that it was lost; the connection ends when the time is over.
            sleep_until(deadline).await;
            Err(TransportError::TimedOut { peer })
        }
        Err(_) => Err(TransportError::TimedOut { peer }),
    }
}

impl Transport for Port {
    fn call(
        &self,
        to: &Peer,
        _group: GroupId,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        let (net, from, peer) = (self.net.clone(), self.from, to.clone());
        let to = net.addressee(from, index(to), &request);
        if net.0.lock().ends[to].is_none() {
            return Box::pin(async move {
                sleep(Duration::from_millis(1)).await;
                let why = "connection refused".to_owned();
                Err(TransportError::Unreachable { peer, why })
            });
        }
        let (answer, answered) = oneshot::channel();
        if let Fate::Arrives(at) = net.fate(from, to) {
            if net.repeats()
                && let Fate::Arrives(again) = net.fate(from, to)
            {
                tokio::spawn(net.clone().carry(from, to, request.clone(), again, None));
            }
            tokio::spawn(net.carry(from, to, request, at, Some(answer)));
        }
        Box::pin(wait(peer, answered, within))
    }

    fn send(
        &self,
        to: &Peer,
        _group: GroupId,
        chunks: Chunks,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        let (net, from, peer, to) = (self.net.clone(), self.from, to.clone(), index(to));
        let Some(at) = net.connect_for_transfer(from, to) else {
            return Box::pin(async move {
                sleep(CONNECT_MAX).await;
                let why = "no connection in time".to_owned();
                Err(TransportError::Unreachable { peer, why })
            });
        };
        let (mut answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            sleep_until(at).await;
            let Some(end) = net.end(from, to) else { return };
            let chunks = net.chunks(from, to, chunks);
            let received = end.process.run(end.receiver.receive_chunks(chunks)).await;
            net.0.lock().trace.count(match received {
                Ok(_) => "snapshots",
                Err(_) => "snapshots broken off",
            });
            tokio::select! {
                () = net.get_through(to, from) => drop(answer.send(received)),
                // Whoever asked waits no more.
                () = answer.closed() => {}
            }
        });
        Box::pin(wait(peer, answered, within))
    }
}
