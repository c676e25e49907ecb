use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use boltq_core::NodeId;
use boltq_raft::{Peer, Transport, TransportError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::{Calls, Echo, GROUP, Node, WITHIN, info, why_unreachable, with_limits};
use crate::peer::PeerConfig;
use crate::peer::config::SILENCE_MAX;

async fn until_answered(from: &Node, to: &Peer) -> Duration {
    let started = Instant::now();
    while let Err(error) = from.call(to, b"there?").await {
        assert!(started.elapsed() < Duration::from_secs(5), "not back: {error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_was_away_is_found_when_it_is_back() {
    let (one, two) = (
        Node::echo(1, PeerConfig::default()).await,
        Node::echo(2, PeerConfig::default()).await,
    );
    one.call(&two.peer, b"x").await.unwrap();
    two.peers.stop().await;
    let down = Instant::now();
    let mut calls = 0;
    while down.elapsed() < Duration::from_secs(4) {
        let called = Instant::now();
        let result = one.call(&two.peer, b"x").await;
        let gone = matches!(
            result,
            Err(TransportError::Unreachable { .. } | TransportError::Broken { .. })
        );
        assert!(gone && called.elapsed() < Duration::from_millis(500), "{result:?}");
        calls += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let attempts = one.peers.metrics().connect_failures.get();
    assert!(calls > 100 && attempts < 15, "{attempts} attempts for {calls} calls");

    let back = Node::start_at(&two.peer.address, info(2, 7), PeerConfig::default()).await;
    back.peers.register(GROUP, Arc::new(Echo));
    let after = until_answered(&one, &back.peer).await;
    assert!(after < Duration::from_secs(2), "found after {after:?}");
    back.peers.stop().await;

    // Deep in the backoff; then the peer calls first.
    let down = Instant::now();
    while down.elapsed() < Duration::from_secs(4) {
        let _unreachable = one.call(&two.peer, b"x").await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let back = Node::start_at(&two.peer.address, info(2, 7), PeerConfig::default()).await;
    back.peers.register(GROUP, Arc::new(Echo));
    back.call(&one.peer, b"I am back").await.unwrap();
    let after = until_answered(&one, &back.peer).await;
    assert!(after < Duration::from_millis(200), "found after {after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_at_the_address_of_a_peer_gets_none_of_its_calls() {
    let (one, two) = (
        Node::echo(1, PeerConfig::default()).await,
        Node::echo(2, PeerConfig::default()).await,
    );
    one.call(&two.peer, b"x").await.unwrap();
    two.peers.stop().await;
    let other = Node::start_at(&two.peer.address, info(3, 7), PeerConfig::default()).await;
    other.peers.register(GROUP, Arc::new(Echo));
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(500) {
        assert!(one.call(&two.peer, b"x").await.is_err());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(why_unreachable(one.call(&two.peer, b"x").await).contains("belongs to node 0000000000000003"));
    assert_eq!(other.peers.metrics().requests.get(), 0);
    one.call(&other.peer, b"x").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_at_a_new_address_is_called_there_at_once() {
    let (one, two) = (
        Node::echo(1, PeerConfig::default()).await,
        Node::echo(2, PeerConfig::default()).await,
    );
    one.call(&two.peer, b"x").await.unwrap();
    two.peers.stop().await;
    let moved = Node::echo(2, PeerConfig::default()).await;
    assert_ne!(moved.peer, two.peer);
    one.call(&moved.peer, b"x").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(one.peers.metrics().outgoing_open.get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_nobody_uses_is_closed_and_made_again() {
    let limits = with_limits(|limits| limits.idle_max = Duration::from_millis(500));
    let (one, two) = (Node::echo(1, limits).await, Node::echo(2, PeerConfig::default()).await);
    let open = || one.peers.metrics().outgoing_open.get();
    for _ in 0..4 {
        one.call(&two.peer, b"x").await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(open(), 1);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(open(), 0);
    one.call(&two.peer, b"x").await.unwrap();
    assert_eq!(
        (one.peers.metrics().breaks.get(), one.peers.metrics().connects.get()),
        (0, 2)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_do_not_resolve_and_addresses_that_are_none_are_unreachable() {
    let one = Node::start(1, PeerConfig::default()).await;
    for address in ["", "no-port", "a b:1", "host.invalid:1", "127.0.0.1:0"] {
        let peer = Peer {
            node: NodeId(2),
            address: address.to_owned(),
        };
        let why = why_unreachable(one.call(&peer, b"x").await);
        assert!(!why.is_empty(), "{address}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_over_which_nothing_is_answered_is_given_up() {
    let (one, two) = (
        Node::echo(1, PeerConfig::default()).await,
        Node::echo(2, PeerConfig::default()).await,
    );
    two.peers.register(
        GROUP,
        Arc::new(Calls(|_| Box::pin(std::future::pending()) as BoxFuture<_>)),
    );
    let call = || {
        one.peers
            .call(&two.peer, GROUP, Bytes::new(), Duration::from_millis(400))
    };
    let started = Instant::now();
    while one.peers.metrics().breaks.get() == 0 {
        let error = call().await.unwrap_err();
        let given_up = one.peers.metrics().breaks.get() > 0;
        assert!(given_up || matches!(error, TransportError::TimedOut { .. }), "{error}");
        assert!(started.elapsed() < SILENCE_MAX * 2, "still waiting");
    }
    assert!(started.elapsed() >= SILENCE_MAX);
    two.peers.register(GROUP, Arc::new(Echo));
    assert!(until_answered(&one, &two.peer).await < Duration::from_secs(1));
}

/// A cable that can be frozen: what is in it stays in it.
struct Cable {
    address: String,
    frozen: Arc<AtomicBool>,
}

impl Cable {
    async fn to(peer: &Peer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let frozen = Arc::new(AtomicBool::new(false));
        let (target, gate) = (peer.address.clone(), frozen.clone());
        tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let far = TcpStream::connect(&target).await.unwrap();
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(carry(near_in, far_out, gate.clone()));
                tokio::spawn(carry(far_in, near_out, gate.clone()));
            }
        });
        Self { address, frozen }
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    frozen: Arc<AtomicBool>,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        while frozen.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_network_is_noticed_costs_bounded_memory_and_heals() {
    let (one, two) = (
        Node::echo(1, PeerConfig::default()).await,
        Node::echo(2, PeerConfig::default()).await,
    );
    let cable = Cable::to(&two.peer).await;
    let through = Peer {
        node: two.peer.node,
        address: cable.address.clone(),
    };
    one.call(&through, b"x").await.unwrap();
    cable.frozen.store(true, Ordering::SeqCst);
    let frozen = Instant::now();
    let megabyte = Bytes::from(vec![1; 1 << 20]);
    let calls: Vec<_> = (0..1_000)
        .map(|_| one.peers.call(&through, GROUP, megabyte.clone(), WITHIN))
        .collect();
    let (mut overloaded, mut broken, mut unsent) = (0, 0, 0);
    for call in calls {
        match call.await {
            Err(TransportError::Unreachable { why, .. }) if why.contains("overloaded") => overloaded += 1,
            Err(TransportError::Unreachable { .. }) => unsent += 1,
            Err(TransportError::Broken { .. }) => broken += 1,
            other => panic!("{other:?}"),
        }
    }
    let noticed = frozen.elapsed();
    assert_eq!(overloaded, 1_000 - 32, "half of 64 MiB waits");
    assert!(broken > 0 && unsent > 0, "{broken} sent, {unsent} not");
    assert!(noticed < Duration::from_millis(4_500), "noticed after {noticed:?}");
    let called = Instant::now();
    let short = one
        .peers
        .call(&through, GROUP, Bytes::new(), Duration::from_millis(100))
        .await;
    assert!(short.is_err() && called.elapsed() < Duration::from_secs(1));

    tokio::time::sleep(Duration::from_secs(2)).await;
    cable.frozen.store(false, Ordering::SeqCst);
    let after = until_answered(&one, &through).await;
    assert!(after < Duration::from_secs(3), "healed after {after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_waits_for_any_more_is_not_sent_when_the_network_is_back() {
    let (one, two) = (
        Node::echo(1, PeerConfig::default()).await,
        Node::echo(2, PeerConfig::default()).await,
    );
    let cable = Cable::to(&two.peer).await;
    let through = Peer {
        node: two.peer.node,
        address: cable.address.clone(),
    };
    one.call(&through, b"x").await.unwrap();
    cable.frozen.store(true, Ordering::SeqCst);
    let megabyte = Bytes::from(vec![1; 1 << 20]);
    for _ in 0..2 {
        let within = Duration::from_millis(400);
        let call = || one.peers.call(&through, GROUP, megabyte.clone(), within);
        let calls: Vec<_> = (0..32).map(|_| call()).collect();
        for call in calls {
            assert!(matches!(call.await, Err(TransportError::TimedOut { .. })));
        }
    }
    cable.frozen.store(false, Ordering::SeqCst);
    until_answered(&one, &through).await;
    assert_eq!(one.peers.metrics().breaks.get(), 0);
    let stale = two.peers.metrics().requests.get() - 2;
    assert!((1..24).contains(&stale), "{stale} of 64 came late");
}
