//! Connecting clients through to the leader, where `server.tcp_forward` is set.
//!
//! Whoever connects to a node that does not lead is connected to the one that does; this node copies bytes and
//! understands none of them. So everything that belongs to a connection, its authentication, its prefetch limit, its
//! confirms and its leases, is on the leader alone, and ends with the connection. It is decided once, at the first byte: when
//! leadership moves later, the connection stays where it is and is answered NOT_LEADER, as one that was opened there.
//!
//! A connection that is passed on begins with a mark, and is not passed on again: an address that leads back here (that
//! of a load balancer, or of another node by mistake) would send it round until no connection is left. The mark is the
//! header of a frame of 4 GiB, which no client can mean; a node that is alone closes the connection, as it does for any
//! frame of that size.
//!
//! What it costs: two file handles for each connection, see `port::Connections`, and no buffer while nothing flows.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::connection::Door;
use super::frame::HEADER_BYTES;
use super::input::{self, Input};

/// What a connection starts with that a node has passed on.
const MARK: [u8; HEADER_BYTES] = [0xff; HEADER_BYTES];
/// For a connection to the leader to be there. After that the client is told where to go itself.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// A leader whose machine is gone is noticed after 10 + 3 * 5 s of silence, or when it has not confirmed for so long what it
/// was sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
const UNCONFIRMED_MAX: Duration = Duration::from_secs(25);
/// Copied at once, in each direction.
const COPY_BYTES: usize = 16 << 10;

/// The client has gone, or the server stops, before it was clear where to.
struct Gone;

impl Door {
    /// Serves a connection until it ends, here or, as far as that is wanted and possible, on the leader.
    pub async fn accept(
        &self,
        mut stream: TcpStream,
        mut input: Input,
        peer: Option<SocketAddr>,
        stop: CancellationToken,
    ) {
        let marked = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            marked = self.take_mark(&mut stream, &mut input) => match marked {
                Ok(marked) => marked,
                Err(Gone) => return,
            },
        };
        let leader = if marked { None } else { self.connect_to_leader().await };
        match leader {
            None => self.serve(stream, input, peer, stop).await,
            Some(leader) => {
                if let Err(error) = pass_through(stream, input, leader, self.idle_write_timeout(), &stop).await {
                    debug!(?peer, %error, "a connection that was passed on to the leader broke");
                }
            }
        }
    }

    /// Whether another node has passed the connection on to this one.
    async fn take_mark(&self, stream: &mut TcpStream, input: &mut Input) -> Result<bool, Gone> {
        if !self.is_clustered() {
            return Ok(false);
        }
        while input.bytes().len() < MARK.len() && MARK.starts_with(input.bytes()) {
            match input.fill(stream).await {
                Ok(0) | Err(_) => return Err(Gone),
                Ok(_) => {}
            }
        }
        let marked = input.bytes().starts_with(&MARK);
        if marked {
            input.consume(MARK.len());
        }
        Ok(marked)
    }

    /// If the connection is to be passed on, and there is somebody who takes it.
    async fn connect_to_leader(&self) -> Option<TcpStream> {
        let leader = self.leader_to_forward_to()?;
        let counts = self.forwards();
        counts.sent.increment();
        let connected = timeout(CONNECT_MAX, connect(&leader)).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => Some(stream),
            Err(error) => {
                counts.failed.increment();
                debug!(leader, %error, "the leader cannot be reached; its address is given to the client");
                None
            }
        }
    }
}

async fn connect(leader: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(leader).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    let probes = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(UNCONFIRMED_MAX))?;
    stream.write_all(&MARK).await?;
    Ok(stream)
}

/// Until the leader ends the connection, or one of the two accepts nothing for `idle`. When the client ends its side, or this
/// node stops, the leader is told so, and what it still answers arrives.
async fn pass_through(
    mut client: TcpStream,
    input: Input,
    mut leader: TcpStream,
    idle: Duration,
    stop: &CancellationToken,
) -> io::Result<()> {
    {
        let (client_read, mut client_write) = client.split();
        let (leader_read, mut leader_write) = leader.split();
        let there = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                copied = async {
                    write(&mut leader_write, &input.into_bytes(), idle).await?;
                    copy(&client_read, &mut leader_write, idle).await
                } => copied?,
            }
            leader_write.shutdown().await?;
            // What is left to do is the business of the other direction.
            std::future::pending::<io::Result<()>>().await
        };
        tokio::select! {
            ended = there => ended?,
            ended = copy(&leader_read, &mut client_write, idle) => ended?,
        }
    }
    drop(leader);
    input::linger(&mut client).await;
    Ok(())
}

/// Until `from` ends.
async fn copy(from: &ReadHalf<'_>, to: &mut WriteHalf<'_>, idle: Duration) -> io::Result<()> {
    loop {
        from.readable().await?;
        let mut bytes = Vec::with_capacity(COPY_BYTES);
        loop {
            bytes.clear();
            match from.try_read_buf(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(_) => write(to, &bytes, idle).await?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
}

async fn write(to: &mut WriteHalf<'_>, mut bytes: &[u8], idle: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        let Ok(written) = timeout(idle, to.write(bytes)).await else {
            warn!(
                ?idle,
                "closing a connection that is passed on: one of its sides accepts no bytes"
            );
            return Err(io::ErrorKind::TimedOut.into());
        };
        bytes = match written? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => &bytes[written..],
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
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
        let passing = tokio::spawn(async move { pass_through(accepted, input, dialled, idle, &stopping).await });
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
