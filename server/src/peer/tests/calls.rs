use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use boltq_core::GroupId;
use boltq_raft::{Transport, TransportError};
use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::{Semaphore, mpsc};

use super::support::{Calls, GROUP, Node, WITHIN, info, why_refused, why_unreachable, with_limits, with_secret};
use crate::peer::PeerConfig;

const OTHER: GroupId = GroupId(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_call_groups_and_services_and_learn_who_the_other_is() {
    let (one, two) = (
        Node::echo(1, with_secret("s")).await,
        Node::echo(2, with_secret("s")).await,
    );
    assert_eq!(one.call(&two.peer, b"there").await, Ok(Bytes::from_static(b"there")));
    assert_eq!(two.call(&one.peer, b"back").await, Ok(Bytes::from_static(b"back")));
    assert_eq!(two.call(&one.peer, b"").await, Ok(Bytes::new()));

    let unknown = one.peers.call(&two.peer, GroupId(9), Bytes::new(), WITHIN).await;
    assert_eq!(why_refused(unknown), "group 9 is not on this node");
    two.peers.unregister(GROUP);
    assert_eq!(
        why_refused(one.call(&two.peer, b"x").await),
        "group 1 is not on this node"
    );

    let forward = |payload| one.peers.forward(&two.peer, 5, payload, WITHIN);
    assert!(why_refused(forward(Bytes::new()).await).contains("no forwarded calls yet"));
    two.peers.serve_forwarded(Arc::new(|service, payload| {
        Box::pin(async move {
            if payload.is_empty() {
                return Err("nothing in it".to_owned());
            }
            Ok(Bytes::from(format!("{service}:{}", payload.len())))
        })
    }));
    assert_eq!(
        forward(Bytes::from_static(b"abc")).await,
        Ok(Bytes::from_static(b"5:3"))
    );
    assert_eq!(why_refused(forward(Bytes::new()).await), "nothing in it");

    let found = one.peers.identify(&two.peer.address, WITHIN).await;
    assert_eq!(found, Ok(info(2, 7)));
    let metrics = one.peers.metrics();
    assert_eq!((metrics.outgoing_open.get(), metrics.incoming_open.get()), (1, 1));
    assert_eq!((metrics.connects.get(), metrics.breaks.get()), (2, 0));
    assert_eq!(two.peers.metrics().requests_refused.get(), 4);
}

/// The scheduler counts what goes over the semaphore and the channel, three for each request, so that the budget of 128 for a
/// turn is used up in the middle of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_start_in_the_order_of_the_calls() {
    let (one, two) = (
        Node::start(1, PeerConfig::default()).await,
        Node::start(2, PeerConfig::default()).await,
    );
    let (arrived, mut order) = mpsc::channel(4_000);
    let free = Arc::new(Semaphore::new(10));
    for group in [GROUP, OTHER] {
        let (arrived, free) = (arrived.clone(), free.clone());
        let receive = move |request: Bytes| {
            let (arrived, free) = (arrived.clone(), free.clone());
            let work = async move {
                drop(free.acquire().await.unwrap());
                drop(free.acquire().await.unwrap());
                arrived.send((group, request.clone())).await.unwrap();
                tokio::task::yield_now().await;
                Ok(request)
            };
            Box::pin(work) as futures_util::future::BoxFuture<'static, _>
        };
        two.peers.register(group, Arc::new(Calls(receive)));
    }
    let calls = (0..1_000_u32).flat_map(|n| {
        let request = Bytes::copy_from_slice(&n.to_be_bytes());
        [GROUP, OTHER].map(|group| one.peers.call(&two.peer, group, request.clone(), WITHIN))
    });
    // Called in order, waited for in any.
    let calls: Vec<_> = calls.collect();
    for (n, answer) in join_all(calls.into_iter().rev()).await.into_iter().rev().enumerate() {
        assert_eq!(
            answer.unwrap(),
            (u32::try_from(n / 2).unwrap()).to_be_bytes().as_slice()
        );
    }
    for n in 0..1_000_u32 {
        for group in [GROUP, OTHER] {
            let (found, request) = order.recv().await.unwrap();
            assert_eq!((found, &request[..]), (group, n.to_be_bytes().as_slice()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_wait_at_the_same_time_and_get_their_own_answers() {
    let (one, two) = (
        Node::start(1, PeerConfig::default()).await,
        Node::start(2, PeerConfig::default()).await,
    );
    let (arrived, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let receive = {
        let (arrived, gate) = (arrived.clone(), gate.clone());
        move |request: Bytes| {
            if arrived.fetch_add(1, Ordering::SeqCst) == 999 {
                gate.add_permits(1_000);
            }
            let gate = gate.clone();
            let work = async move {
                gate.acquire().await.unwrap().forget();
                Ok(request)
            };
            Box::pin(work) as futures_util::future::BoxFuture<'static, _>
        }
    };
    two.peers.register(GROUP, Arc::new(Calls(receive)));
    let calls = (0..1_000_u32).map(|n| {
        let request = Bytes::copy_from_slice(&n.to_be_bytes());
        one.peers.call(&two.peer, GROUP, request, WITHIN)
    });
    for (n, answer) in join_all(calls).await.into_iter().enumerate() {
        assert_eq!(answer.unwrap(), u32::try_from(n).unwrap().to_be_bytes().as_slice());
    }
    assert_eq!(one.peers.metrics().connects.get(), 1);
}

/// A receiver that never answers, and tells when its work is dropped.
fn hung(dropped: Arc<AtomicUsize>) -> Arc<dyn boltq_raft::Receiver> {
    struct Told(Arc<AtomicUsize>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    Arc::new(Calls(move |request: Bytes| {
        let told = Told(dropped.clone());
        Box::pin(async move {
            let _told = (told, request);
            std::future::pending().await
        }) as futures_util::future::BoxFuture<'static, _>
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_hangs_uses_half_of_the_room_until_its_callers_give_up() {
    let limits = with_limits(|limits| limits.outstanding_requests_max = 8);
    let (one, two) = (Node::start(1, limits).await, Node::echo(2, PeerConfig::default()).await);
    let dropped = Arc::new(AtomicUsize::new(0));
    two.peers.register(OTHER, hung(dropped.clone()));
    let hang = || {
        one.peers
            .call(&two.peer, OTHER, Bytes::new(), Duration::from_millis(300))
    };
    let hanging: Vec<_> = (0..4).map(|_| hang()).collect();
    assert!(why_unreachable(hang().await).contains("overloaded"));
    assert_eq!(one.call(&two.peer, b"other groups go on").await.unwrap().len(), 18);
    for call in hanging {
        assert!(matches!(call.await, Err(TransportError::TimedOut { .. })));
    }
    assert!(
        matches!(hang().await, Err(TransportError::TimedOut { .. })),
        "room has come back"
    );
    let metrics = one.peers.metrics();
    assert_eq!((metrics.overloaded.get(), metrics.timeouts.get()), (1, 5));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(dropped.load(Ordering::SeqCst), 5, "the other node gives up too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_is_not_sent() {
    let limits = || with_limits(|limits| limits.message_bytes_max = 1_000);
    let (one, two) = (Node::start(1, limits()).await, Node::echo(2, limits()).await);
    let call = |bytes| one.peers.call(&two.peer, GROUP, Bytes::from(vec![1; bytes]), WITHIN);
    assert_eq!(call(1_000).await.unwrap().len(), 1_000);
    assert!(why_unreachable(call(1_001).await).contains("at most 1000"));
    two.peers.register(
        GROUP,
        Arc::new(Calls(|_| {
            Box::pin(async { Ok(Bytes::from(vec![1; 1_001])) }) as futures_util::future::BoxFuture<_>
        })),
    );
    assert!(why_refused(call(1).await).contains("1001 bytes"));
}

/// On one thread: nothing is sent while the calls are made.
#[tokio::test]
async fn forwarded_calls_that_wait_are_overtaken_by_groups() {
    let (one, two) = (
        Node::start(1, PeerConfig::default()).await,
        Node::echo(2, PeerConfig::default()).await,
    );
    let seen = Arc::new(AtomicBool::new(false));
    two.peers.serve_forwarded(Arc::new({
        let seen = seen.clone();
        move |_, payload| {
            let first = !seen.load(Ordering::SeqCst);
            Box::pin(async move { Ok(payload.slice(..usize::from(first))) })
        }
    }));
    two.peers.register(
        GROUP,
        Arc::new(Calls(move |request| {
            seen.store(true, Ordering::SeqCst);
            Box::pin(async { Ok(request) }) as futures_util::future::BoxFuture<_>
        })),
    );
    let megabyte = Bytes::from(vec![1; 1 << 20]);
    let forwarded: Vec<_> = (0..20)
        .map(|_| one.peers.forward(&two.peer, 1, megabyte.clone(), WITHIN))
        .collect();
    one.call(&two.peer, b"now").await.unwrap();
    for answer in join_all(forwarded).await {
        assert!(answer.unwrap().is_empty(), "came before the call to the group");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_calls_nobody_and_answers_nobody() {
    let (one, two) = (
        Node::echo(1, PeerConfig::default()).await,
        Node::echo(2, PeerConfig::default()).await,
    );
    two.peers.register(OTHER, hung(Arc::default()));
    one.call(&two.peer, b"x").await.unwrap();
    let hanging = one.peers.call(&two.peer, OTHER, Bytes::new(), WITHIN);
    tokio::time::sleep(Duration::from_millis(50)).await;
    one.peers.stop().await;
    assert!(matches!(hanging.await, Err(TransportError::Broken { .. })));
    assert_eq!(why_unreachable(one.call(&two.peer, b"x").await), "this node stops");
    assert!(why_unreachable(two.call(&one.peer, b"x").await).contains("no connection"));
}
