//! Connecting clients through to the leader, where `server.tcp_forward` is set.
//!
//! Whoever connects to a node that does not lead is connected to the one that does; this node copies bytes and
//! understands none of them. So everything that belongs to a connection, its authentication, its prefetch limit, its
//! confirms and its leases, is on the leader alone, and ends with the connection. It is decided once, at the first byte: when
//! leadership moves later, the connection stays where it is and is answered NOT_LEADER, as one that was opened there.
//!
//! While nobody leads, or the leader does not take the connection because it has just died, this waits for the next one. There are
//! clients that subscribe again as soon as they are connected, and look at no answer: one that is told NOT_LEADER then stays
//! connected, and hears nothing ever after.
//!
//! A connection that is passed on begins with a mark, and is not passed on again: an address that leads back here (that
//! of a load balancer, or of another node by mistake) would send it round until no connection is left. The mark is the
//! header of a frame of 4 GiB, which no client can mean; a node that is alone closes the connection, as it does for any
//! frame of that size.
//!
//! Where a key is wanted, the first frame has to have a right one; who shows none is answered here. The leader looks at the
//! key too.
//!
//! What it costs: two file handles for each connection, see `port::Connections`, and no buffer while nothing flows.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::bodies::shown_key;
use super::command::Command;
use super::door::Door;
use super::frame::{self, HEADER_BYTES};
use super::input::{self, Input};
use crate::access::Client;
use crate::tls::{Dialer, Stream};

/// What a connection starts with that a node has passed on.
const MARK: [u8; HEADER_BYTES] = [0xff; HEADER_BYTES];
/// For a connection to the leader to be there.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// For a leader to be there who takes the connection. After that the client is told where to go itself, as far as that is known;
/// it is less than what clients wait for an answer.
const LEADER_MAX: Duration = Duration::from_secs(8);
/// Between two looks at who leads.
const LOOK: Duration = Duration::from_millis(50);
/// A leader whose machine is gone is noticed after 10 + 3 * 5 s of silence, or when it has not confirmed for so long what it
/// was sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
const UNCONFIRMED_MAX: Duration = Duration::from_secs(25);
/// Copied at once, in each direction.
const COPY_BYTES: usize = 16 << 10;

/// Where a connection can be served.
enum Begun {
    /// On this node.
    Here,
    /// On the leader, if that is another one.
    Anywhere,
    /// Nowhere: the client has gone before it was clear.
    Gone,
}

impl Door {
    /// Serves a connection until it ends, here or, as far as that is wanted and possible, on the leader.
    pub async fn accept(&self, mut stream: Stream, mut input: Input, client: &Client, stop: CancellationToken) {
        let begun = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            begun = self.begin(&mut stream, &mut input, client) => begun,
        };
        let leader = match begun {
            Begun::Gone => return,
            Begun::Here => None,
            Begun::Anywhere => tokio::select! {
                biased;
                () = stop.cancelled() => return,
                leader = self.find_leader() => leader,
            },
        };
        match leader {
            None => self.serve(stream, input, client, stop).await,
            Some(leader) => {
                if let Err(error) = pass_through(stream, input, leader, self.idle_write_timeout(), &stop).await {
                    debug!(peer = ?client.peer(), %error, "a connection that was passed on to the leader broke");
                }
            }
        }
    }

    /// Reads as much as it takes to know where a connection can be served.
    async fn begin(&self, stream: &mut Stream, input: &mut Input, client: &Client) -> Begun {
        if !self.is_clustered() {
            return Begun::Here;
        }
        while input.bytes().len() < MARK.len() && MARK.starts_with(input.bytes()) {
            match input.fill(stream).await {
                Ok(0) | Err(_) => return Begun::Gone,
                Ok(_) => {}
            }
        }
        if input.bytes().starts_with(&MARK) {
            input.consume(MARK.len());
            self.await_a_leader().await;
            return Begun::Here;
        }
        if !self.passes_on() {
            return Begun::Here;
        }
        if !self.access().is_required() {
            return Begun::Anywhere;
        }
        self.await_auth(stream, input, client).await
    }

    /// Whoever was elected is known to others before it leads: they may pass connections on a moment too early.
    async fn await_a_leader(&self) {
        let waiting = async {
            while self.is_follower() && self.queues().leader().messaging.is_empty() {
                sleep(LOOK).await;
            }
        };
        // Without one, the client is told so.
        let _ = timeout(LEADER_MAX, waiting).await;
    }

    /// Reads the first frame. Only who shows a right key in it is passed on; the others are answered here, so that the leader
    /// hears of no failed attempts that all seem to come from this node.
    async fn await_auth(&self, stream: &mut Stream, input: &mut Input, client: &Client) -> Begun {
        loop {
            if let frame::Start::Frame { code, body_bytes, body } = frame::start(input.bytes()) {
                if Command::of(code) != Command::Auth || body_bytes > self.access().policy().frame_bytes_before_auth_max
                {
                    return Begun::Here;
                }
                if let Some(body) = body {
                    let shown = shown_key(body);
                    let known = shown.is_some_and(|shown| self.access().knows(client, shown.as_bytes()));
                    return if known { Begun::Anywhere } else { Begun::Here };
                }
            }
            match input.fill(stream).await {
                // Also what is no whole frame has its answer, or none.
                Ok(0) | Err(_) => return Begun::Here,
                Ok(_) => {}
            }
        }
    }

    /// A connection to the leader, as soon as one takes it. `None`: this node leads by now, or nobody did in time.
    async fn find_leader(&self) -> Option<Stream> {
        let finding = async {
            while self.passes_on() {
                let leader = self.queues().leader().messaging;
                if !leader.is_empty()
                    && let Some(stream) = self.connect_to(&leader).await
                {
                    return Some(stream);
                }
                sleep(LOOK).await;
            }
            None
        };
        let found = timeout(LEADER_MAX, finding).await;
        found.unwrap_or_else(|_| {
            self.forwards().no_leader.increment();
            None
        })
    }

    async fn connect_to(&self, leader: &str) -> Option<Stream> {
        let counts = self.forwards();
        counts.sent.increment();
        let connected = timeout(CONNECT_MAX, connect(leader, self.dialer())).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => Some(stream),
            Err(error) => {
                counts.failed.increment();
                debug!(leader, %error, "the leader does not take a connection that is passed on; looking for the next one");
                None
            }
        }
    }
}

async fn connect(leader: &str, dialer: &Dialer) -> io::Result<Stream> {
    let stream = TcpStream::connect(leader).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    let probes = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(UNCONFIRMED_MAX))?;
    let mut stream = dialer.binary(leader, stream).await?;
    stream.write_all(&MARK).await?;
    stream.flush().await?;
    Ok(stream)
}

/// Until the leader ends the connection, or one of the two accepts nothing for `idle`. When the client ends its side, or this
/// node stops, the leader is told so, and what it still answers arrives.
async fn pass_through(
    client: Stream,
    input: Input,
    leader: Stream,
    idle: Duration,
    stop: &CancellationToken,
) -> io::Result<()> {
    let (mut client_read, mut client_write) = split(client);
    let (mut leader_read, mut leader_write) = split(leader);
    {
        let there = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                copied = async {
                    write(&mut leader_write, &input.into_bytes(), idle).await?;
                    copy(&mut client_read, &mut leader_write, idle).await
                } => copied?,
            }
            leader_write.shutdown().await?;
            // What is left to do is the business of the other direction.
            std::future::pending::<io::Result<()>>().await
        };
        tokio::select! {
            ended = there => ended?,
            ended = copy(&mut leader_read, &mut client_write, idle) => ended?,
        }
    }
    drop((leader_read, leader_write));
    input::linger(&mut client_read.unsplit(client_write)).await;
    Ok(())
}

/// Until `from` ends.
async fn copy(from: &mut ReadHalf<Stream>, to: &mut WriteHalf<Stream>, idle: Duration) -> io::Result<()> {
    loop {
        let bytes = read(from).await?;
        if bytes.is_empty() {
            return Ok(());
        }
        write(to, &bytes, idle).await?;
    }
}

/// What there is; nothing at the end. While it waits it holds no buffer.
async fn read(from: &mut ReadHalf<Stream>) -> io::Result<Vec<u8>> {
    poll_fn(|context| {
        let mut bytes = Vec::with_capacity(COPY_BYTES);
        let read = pin!(from.read_buf(&mut bytes)).poll(context);
        read.map_ok(|_| bytes)
    })
    .await
}

async fn write(to: &mut WriteHalf<Stream>, mut bytes: &[u8], idle: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        bytes = match in_time(idle, to.write(bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => &bytes[written..],
        };
    }
    in_time(idle, to.flush()).await
}

async fn in_time<T>(idle: Duration, done: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(idle, done).await.unwrap_or_else(|_| {
        warn!(
            ?idle,
            "closing a connection that is passed on: one of its sides accepts no bytes"
        );
        Err(io::ErrorKind::TimedOut.into())
    })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::doors::intake::intake_of;

    const IDLE: Duration = Duration::from_secs(5);

    /// Both ends of a connection.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    struct Passed {
        client: TcpStream,
        leader: TcpStream,
        stop: CancellationToken,
        passing: tokio::task::JoinHandle<io::Result<()>>,
    }

    /// A client that has said `first`, connected to a leader.
    async fn passed(first: &[u8], idle: Duration) -> Passed {
        let (mut client, mut accepted) = pair().await;
        let (dialled, leader) = pair().await;
        let mut input = Input::new(&intake_of(1 << 20, 1 << 20, IDLE).connection());
        client.write_all(first).await.unwrap();
        while input.bytes().len() < first.len() {
            input.fill(&mut accepted).await.unwrap();
        }
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let passing = tokio::spawn(async move {
            let (client, leader) = (Stream::Plain(accepted), Stream::Plain(dialled));
            pass_through(client, input, leader, idle, &stopping).await
        });
        Passed {
            client,
            leader,
            stop,
            passing,
        }
    }

    async fn said(stream: &mut TcpStream, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn bytes_go_both_ways_and_those_that_were_read_go_first() {
        let mut passed = passed(b"first", IDLE).await;
        passed.client.write_all(b" then").await.unwrap();
        assert_eq!(said(&mut passed.leader, 10).await, b"first then");
        let large: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
        let sent = large.clone();
        let mut leader = passed.leader;
        let answering = tokio::spawn(async move {
            leader.write_all(&sent).await.unwrap();
        });
        assert_eq!(said(&mut passed.client, large.len()).await, large);
        answering.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_has_said_everything_still_gets_its_answers() {
        let mut passed = passed(b"ask", IDLE).await;
        passed.client.shutdown().await.unwrap();
        let mut asked = Vec::new();
        passed.leader.read_to_end(&mut asked).await.unwrap();
        assert_eq!(asked, b"ask");
        passed.leader.write_all(b"answer").await.unwrap();
        drop(passed.leader);
        let mut answer = Vec::new();
        passed.client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
        drop(passed.client);
        passed.passing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_stop_lets_the_leader_finish() {
        let mut passed = passed(b"ask", IDLE).await;
        assert_eq!(said(&mut passed.leader, 3).await, b"ask");
        passed.stop.cancel();
        assert_eq!(passed.leader.read(&mut [0]).await.unwrap(), 0);
        passed.leader.write_all(b"answer").await.unwrap();
        drop(passed.leader);
        let mut answer = Vec::new();
        passed.client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
    }

    #[tokio::test]
    async fn a_leader_that_breaks_ends_the_connection() {
        let mut passed = passed(b"ask", IDLE).await;
        assert_eq!(said(&mut passed.leader, 3).await, b"ask");
        SockRef::from(&passed.leader).set_linger(Some(Duration::ZERO)).unwrap();
        drop(passed.leader);
        assert!(matches!(passed.client.read(&mut [0]).await, Ok(0) | Err(_)));
        assert!(passed.passing.await.unwrap().is_err());
    }

    #[tokio::test]
    async fn who_accepts_nothing_is_given_up() {
        let passed = passed(b"", Duration::from_millis(200)).await;
        let mut leader = passed.leader;
        let answering = tokio::spawn(async move {
            let block = vec![0; 1 << 20];
            while leader.write_all(&block).await.is_ok() {}
        });
        let ended = timeout(IDLE, passed.passing).await.unwrap().unwrap();
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        answering.await.unwrap();
        drop(passed.client);
    }
}
