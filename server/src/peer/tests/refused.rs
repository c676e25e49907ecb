use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use boltq_core::NodeId;
use boltq_proto::internal::v1::{ExchangeRequest, IdentifyRequest, TransferRequest, exchange_request};
use boltq_raft::Peer;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::{Code, Status};

use super::support::{NAME, Node, WITHIN, info, prove, raw, raw_proved, why_unreachable, with_limits, with_secret};
use crate::peer::config::{PROOF_MAX, UNPROVED_BYTES_MAX, UNPROVED_CONNECTIONS_MAX};
use crate::peer::proof::{Caller, Party};
use crate::peer::{PeerConfig, PeerSecret};

async fn still_serves(node: &Node, config: PeerConfig) {
    let honest = Node::start(77, config).await;
    assert_eq!(
        honest.call(&node.peer, b"still there").await,
        Ok(Bytes::from_static(b"still there"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_secret_nobody_is_let_in_and_nobody_is_spoken_to() {
    let guarded = Node::echo(2, with_secret("right")).await;
    let open = Node::echo(3, PeerConfig::default()).await;
    for config in [with_secret("wrong"), PeerConfig::default()] {
        let stranger = Node::echo(1, config).await;
        let why = why_unreachable(stranger.call(&guarded.peer, b"x").await);
        assert!(why.contains("secrets differ"), "{why}");
        let why = stranger
            .peers
            .identify(&guarded.peer.address, WITHIN)
            .await
            .unwrap_err()
            .why;
        assert!(why.contains("secrets differ"), "{why}");
        let why = why_unreachable(guarded.call(&stranger.peer, b"x").await);
        assert!(why.contains("secrets differ") || why.contains("has none"), "{why}");
    }
    let why = why_unreachable(guarded.call(&open.peer, b"x").await);
    assert!(why.contains("this one has none"), "{why}");
    assert_eq!(guarded.peers.metrics().requests.get(), 0);
    assert_eq!(guarded.peers.metrics().incoming_open.get(), 0);
    still_serves(&guarded, with_secret("right")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_reaches_another_node_or_cluster_is_refused() {
    let (one, two) = (
        Node::start(1, PeerConfig::default()).await,
        Node::echo(2, PeerConfig::default()).await,
    );
    let reused = Peer {
        node: NodeId(3),
        address: two.peer.address.clone(),
    };
    let why = why_unreachable(one.call(&reused, b"x").await);
    assert!(
        why.contains("node 0000000000000003 is wanted, but this address belongs to node 0000000000000002"),
        "{why}"
    );
    let foreign = Node::start_at("127.0.0.1:0", info(4, 8), PeerConfig::default()).await;
    let why = why_unreachable(foreign.call(&two.peer, b"x").await);
    assert!(
        why.contains("belongs to cluster 0000000000000008, this one to 0000000000000007"),
        "{why}"
    );
    let fresh = Node::start_at("127.0.0.1:0", info(5, 0), PeerConfig::default()).await;
    fresh.call(&two.peer, b"x").await.unwrap();
    assert_eq!(two.peers.metrics().requests.get(), 1);
}

fn tells_nothing(status: &Status) {
    let text = format!("{status:?}");
    for secret in [NAME, "0000000000000002", "0000000000000007", "9100"] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_but_a_proof_is_answered_before_the_proof() {
    for config in [with_secret("s"), PeerConfig::default()] {
        let node = Node::echo(2, config.clone()).await;
        let mut client = raw(&node).await;
        let refused = [
            client.identify(IdentifyRequest {}).await.map(drop).unwrap_err(),
            client
                .exchange(tokio_stream::iter([ExchangeRequest::default()]))
                .await
                .map(drop)
                .unwrap_err(),
            client
                .transfer(tokio_stream::iter([TransferRequest::default()]))
                .await
                .map(drop)
                .unwrap_err(),
        ];
        for status in refused {
            assert_eq!(status.code(), Code::Unauthenticated);
            tells_nothing(&status);
        }
        still_serves(&node, config).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_proof_opens_nothing() {
    let node = Node::echo(2, with_secret("s")).await;
    let secret = PeerSecret::new("s");
    let own = Party {
        node: NodeId(1),
        cluster: 7,
    };
    let (caller, hello) = Caller::hello(Some(&secret), own, NodeId(2)).unwrap();
    let mut recorded = None;
    let mut first = raw(&node).await;
    prove(&mut first, hello.clone(), |challenge| {
        let (_, proof) = caller.prove(&challenge).unwrap();
        recorded.insert(proof).clone()
    })
    .await
    .unwrap();
    first.identify(IdentifyRequest {}).await.unwrap();

    let mut second = raw(&node).await;
    let status = prove(&mut second, hello, |_| recorded.unwrap()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    tells_nothing(&status);
    let status = second.identify(IdentifyRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
}

/// Everything until the other side closes, or fails to within `most`.
async fn until_closed(stream: &mut TcpStream, most: Duration) -> io::Result<usize> {
    let mut bytes = Vec::new();
    match tokio::time::timeout(most, stream.read_to_end(&mut bytes)).await {
        Err(_) => Err(io::Error::other(format!("still open after {most:?}"))),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => Ok(bytes.len()),
        Ok(read) => read,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_closes_its_own_connection_only() {
    let node = Node::echo(2, PeerConfig::default()).await;
    let garbage: [&[u8]; 4] = [
        &[0; 100],
        &[0xFF; 9_000],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xFF\xFF\xFF\x04\x00\x00\x00\x00\x00",
    ];
    for bytes in garbage {
        let mut stream = TcpStream::connect(node.peers.address()).await.unwrap();
        let _broken_early = stream.write_all(bytes).await;
        until_closed(&mut stream, Duration::from_secs(2)).await.unwrap();
    }
    still_serves(&node, PeerConfig::default()).await;
}

/// Pings are lawful at any time in HTTP/2, and answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_bytes_than_a_proof_has_are_refused() {
    let node = Node::echo(2, with_secret("s")).await;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    for (pings, closed) in [(200, false), (300, true)] {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(settings);
        bytes.extend(ping.repeat(pings));
        assert_eq!(bytes.len() > UNPROVED_BYTES_MAX, closed);
        let mut stream = TcpStream::connect(node.peers.address()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let end = until_closed(&mut stream, Duration::from_millis(500)).await;
        assert_eq!(end.is_ok(), closed, "{end:?}");
    }
    still_serves(&node, with_secret("s")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_drips_is_closed_in_time_and_the_others_are_served() {
    let node = Node::echo(2, PeerConfig::default()).await;
    let mut stream = TcpStream::connect(node.peers.address()).await.unwrap();
    let started = Instant::now();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for byte in preface.iter().chain(std::iter::repeat(&0)) {
        if stream.write_all(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(started.elapsed() < PROOF_MAX + Duration::from_secs(2), "still open");
    }
    assert!(started.elapsed() > PROOF_MAX / 2, "closed for another reason");
    assert_eq!(node.peers.metrics().refused.get(), 1);
    still_serves(&node, PeerConfig::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_full_of_silence_lets_nodes_in() {
    let node = Node::echo(2, PeerConfig::default()).await;
    let mut silent = Vec::new();
    for _ in 0..UNPROVED_CONNECTIONS_MAX + 5 {
        silent.push(TcpStream::connect(node.peers.address()).await.unwrap());
    }
    still_serves(&node, PeerConfig::default()).await;
    for (n, stream) in silent.iter_mut().enumerate().take(6) {
        let closed = until_closed(stream, Duration::from_millis(500)).await;
        assert!(closed.is_ok(), "connection {n} is not the oldest any more: {closed:?}");
    }
    let youngest = silent.last_mut().unwrap();
    until_closed(youngest, Duration::from_millis(100)).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proved_connections_are_bounded_and_places_come_back() {
    let node = Node::echo(2, with_limits(|limits| limits.connections_max = 1)).await;
    let first = Node::start(1, PeerConfig::default()).await;
    let second = Node::start(3, PeerConfig::default()).await;
    first.call(&node.peer, b"x").await.unwrap();
    let why = why_unreachable(second.call(&node.peer, b"x").await);
    assert!(why.contains("too many connections"), "{why}");
    first.peers.stop().await;
    let started = Instant::now();
    while let Err(error) = second.call(&node.peer, b"x").await {
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "the place did not come back: {error}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Proved, but it does not read: nothing may pile up for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_for_ever_and_reads_nothing_is_cut_off() {
    let node = Node::echo(2, with_limits(|limits| limits.outstanding_requests_max = 8)).await;
    let mut client = raw_proved(&node).await;
    let sent = Arc::new(AtomicU64::new(0));
    let request = ExchangeRequest {
        target: Some(exchange_request::Target::Group(1)),
        payload: Bytes::from_static(&[1; 1_000]),
        ..ExchangeRequest::default()
    };
    let endless = tokio_stream::iter(1..).map({
        let sent = sent.clone();
        move |id| {
            sent.store(id, Ordering::SeqCst);
            ExchangeRequest { id, ..request.clone() }
        }
    });
    let _unread = client.exchange(endless).await.unwrap();
    let started = Instant::now();
    while node.peers.metrics().incoming_open.get() > 0 || sent.load(Ordering::SeqCst) == 0 {
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "still read after {started:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < 20_000, "{sent} requests were taken");
    still_serves(&node, PeerConfig::default()).await;
}
