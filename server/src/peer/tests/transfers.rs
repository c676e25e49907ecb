use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use boltq_proto::internal::v1::transfer_request::Step;
use boltq_proto::internal::v1::{TransferRequest, TransferStart, transfer_response};
use boltq_raft::{Transport, TransportError};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use tokio::sync::mpsc;

use super::support::{GROUP, Node, Transfers, WITHIN, raw_proved, why_refused, with_limits, with_secret};
use crate::peer::PeerConfig;

type Chunk = Result<Bytes, String>;
const CHUNK_BYTES: usize = 256 << 10;

/// Adds up what comes, or says what went wrong.
fn counting(chunks: BoxStream<'static, Chunk>) -> BoxFuture<'static, Chunk> {
    Box::pin(async move {
        let mut chunks = chunks;
        let mut bytes = 0;
        while let Some(chunk) = chunks.next().await {
            bytes += chunk?.len();
        }
        Ok(Bytes::from(bytes.to_string()))
    })
}

/// Tells when its transfer begins, which is `None`, and how it ends.
fn telling(told: mpsc::UnboundedSender<Option<Chunk>>) -> Arc<dyn boltq_raft::Receiver> {
    Arc::new(Transfers(move |chunks: BoxStream<'static, Chunk>| {
        let told = told.clone();
        Box::pin(async move {
            let begun = told.clone();
            let chunks = chunks.enumerate().map(move |(n, chunk)| {
                if n == 0 {
                    begun.send(None).unwrap();
                }
                chunk
            });
            let result = counting(chunks.boxed()).await;
            told.send(Some(result.clone())).unwrap();
            result
        }) as BoxFuture<'static, Chunk>
    }))
}

/// What was told, after the beginning.
async fn end_of(told: &mut mpsc::UnboundedReceiver<Option<Chunk>>) -> Chunk {
    loop {
        let next = tokio::time::timeout(WITHIN * 2, told.recv()).await;
        if let Some(end) = next.unwrap().unwrap() {
            return end;
        }
    }
}

fn chunks(count: usize) -> impl futures_util::Stream<Item = Chunk> + Send + 'static {
    let chunk = Bytes::from(vec![7; CHUNK_BYTES]);
    stream::iter(0..count).map(move |_| Ok(chunk.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_while_200_megabytes_are_transferred() {
    let (one, two) = (
        Node::start(1, with_secret("s")).await,
        Node::start(2, with_secret("s")).await,
    );
    two.peers.register(GROUP, Arc::new(Transfers(counting)));
    one.call(&two.peer, b"x").await.unwrap();
    let count = 800;
    let sent = tokio::spawn(one.peers.send(&two.peer, GROUP, chunks(count).boxed(), WITHIN));
    let started = Instant::now();
    let mut worst = Duration::ZERO;
    while !sent.is_finished() {
        let called = Instant::now();
        one.call(&two.peer, b"heartbeat").await.unwrap();
        worst = worst.max(called.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let lasted = started.elapsed();
    let answer = sent.await.unwrap().unwrap();
    assert_eq!(answer, (count * CHUNK_BYTES).to_string());
    // Behind the chunks a call would take about as long as the transfer.
    assert!(
        worst < (lasted / 4).max(Duration::from_millis(50)),
        "{worst:?} of {lasted:?}"
    );
    let (sent, received) = (one.peers.metrics(), two.peers.metrics());
    assert_eq!(sent.transfer_bytes_sent.get(), (count * CHUNK_BYTES) as u64);
    assert_eq!(received.transfer_bytes_received.get(), (count * CHUNK_BYTES) as u64);
    assert_eq!(sent.connects.get(), 2, "a connection of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_stops_reading_stops_the_sender() {
    let (one, two) = (
        Node::start(1, PeerConfig::default()).await,
        Node::start(2, PeerConfig::default()).await,
    );
    let receive = |chunks: BoxStream<'static, Chunk>| {
        Box::pin(async move {
            let _held = chunks;
            std::future::pending().await
        }) as BoxFuture<'static, Chunk>
    };
    two.peers.register(GROUP, Arc::new(Transfers(receive)));
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = chunks(4_000).inspect({
        let taken = taken.clone();
        move |_| {
            taken.fetch_add(CHUNK_BYTES, Ordering::SeqCst);
        }
    });
    let started = Instant::now();
    let within = Duration::from_secs(1);
    let result = one.peers.send(&two.peer, GROUP, counted.boxed(), within).await;
    assert!(matches!(result, Err(TransportError::TimedOut { .. })), "{result:?}");
    assert!(
        started.elapsed() >= within && started.elapsed() < within * 3,
        "{:?}",
        started.elapsed()
    );
    let taken = taken.load(Ordering::SeqCst);
    assert!(taken > 0 && taken < 8 << 20, "{taken} bytes are held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_fails_ends_the_transfer_on_both_sides() {
    let (one, two) = (
        Node::start(1, PeerConfig::default()).await,
        Node::start(2, PeerConfig::default()).await,
    );
    let (told, mut ends) = mpsc::unbounded_channel();
    two.peers.register(GROUP, telling(told));
    let failing = chunks(3)
        .chain(stream::iter([Err("the disk is gone".to_owned())]))
        .chain(chunks(3));
    let result = one.peers.send(&two.peer, GROUP, failing.boxed(), WITHIN).await;
    let broken = matches!(&result, Err(TransportError::Broken { why, .. }) if why.contains("the disk is gone"));
    assert!(broken, "{result:?}");
    let why = end_of(&mut ends).await.unwrap_err();
    assert_eq!(why, "the sender gave up: the disk is gone");
}

/// A stream that was reset looks like one that came to its end, if HTTP/2 has it so.
const ENDS: [&str; 3] = ["broke off", "ended without its last chunk", "this node stops"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_that_is_dropped_or_whose_node_dies_is_an_error_for_the_receiver() {
    let two = Node::start(2, PeerConfig::default()).await;
    let (told, mut ends) = mpsc::unbounded_channel();
    two.peers.register(GROUP, telling(told));
    for dies in [false, true] {
        let one = Node::start(1, PeerConfig::default()).await;
        let endless = chunks(3).chain(stream::pending());
        let transfer = tokio::spawn(one.peers.send(&two.peer, GROUP, endless.boxed(), WITHIN));
        assert_eq!(ends.recv().await.unwrap(), None);
        if dies {
            two.peers.stop().await;
            assert!(transfer.await.unwrap().is_err());
        } else {
            transfer.abort();
        }
        let why = end_of(&mut ends).await.unwrap_err();
        assert!(ENDS.iter().any(|end| why.contains(end)), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_ends_in_peace_without_the_last_step_is_an_error_too() {
    let two = Node::start(2, PeerConfig::default()).await;
    let (told, mut ends) = mpsc::unbounded_channel();
    two.peers.register(GROUP, telling(told));
    let start = TransferStart {
        group: GROUP.0,
        within_ms: 5_000,
    };
    let steps = [Step::Start(start), Step::Chunk(Bytes::from_static(b"half"))];
    let requests = steps.map(|step| TransferRequest { step: Some(step) });
    let mut client = raw_proved(&two).await;
    let answer = client.transfer(stream::iter(requests)).await.unwrap().into_inner();
    let why = end_of(&mut ends).await.unwrap_err();
    assert_eq!(why, "the transfer ended without its last chunk");
    assert_eq!(answer.result, Some(transfer_response::Result::Refusal(why)));
    let begun = client.transfer(stream::iter([TransferRequest::default()])).await;
    assert_eq!(begun.unwrap_err().code(), tonic::Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_hangs_is_noticed_on_both_sides() {
    let (one, two) = (
        Node::start(1, PeerConfig::default()).await,
        Node::start(2, PeerConfig::default()).await,
    );
    let (told, mut ends) = mpsc::unbounded_channel();
    two.peers.register(GROUP, telling(told));
    let within = Duration::from_millis(300);
    let hanging = chunks(1).chain(stream::pending());
    let result = one.peers.send(&two.peer, GROUP, hanging.boxed(), within).await;
    assert!(matches!(result, Err(TransportError::TimedOut { .. })), "{result:?}");
    let why = end_of(&mut ends).await.unwrap_err();
    assert!(ENDS.iter().any(|end| why.contains(end)), "{why}");

    let start = TransferStart {
        group: GROUP.0,
        within_ms: 200,
    };
    let start = TransferRequest {
        step: Some(Step::Start(start)),
    };
    let mut client = raw_proved(&two).await;
    let answer = client.transfer(stream::iter([start]).chain(stream::pending())).await;
    let why = end_of(&mut ends).await.unwrap_err();
    assert_eq!(why, "no chunk for 400 ms");
    assert_eq!(
        answer.unwrap().into_inner().result,
        Some(transfer_response::Result::Refusal(why))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_may_refuse_early_and_chunks_have_a_limit() {
    let limits = || with_limits(|limits| limits.message_bytes_max = CHUNK_BYTES);
    let (one, two) = (Node::start(1, limits()).await, Node::start(2, limits()).await);
    let result = one.peers.send(&two.peer, GROUP, chunks(1).boxed(), WITHIN).await;
    assert!(why_refused(result).contains("not on this node"));
    let receive = |chunks: BoxStream<'static, Chunk>| {
        Box::pin(async move {
            let mut chunks = chunks;
            let first = chunks.next().await.unwrap()?;
            Err(format!("{} bytes of the wrong sort", first.len()))
        }) as BoxFuture<'static, Chunk>
    };
    two.peers.register(GROUP, Arc::new(Transfers(receive)));
    let result = one.peers.send(&two.peer, GROUP, chunks(200).boxed(), WITHIN).await;
    assert_eq!(why_refused(result), format!("{CHUNK_BYTES} bytes of the wrong sort"));

    two.peers.register(GROUP, Arc::new(Transfers(counting)));
    let result = one.peers.send(&two.peer, GROUP, chunks(2).boxed(), WITHIN).await;
    assert_eq!(result.unwrap(), (2 * CHUNK_BYTES).to_string());
    let large = stream::iter([Ok(Bytes::from(vec![0; CHUNK_BYTES + 1]))]);
    let result = one.peers.send(&two.peer, GROUP, large.boxed(), WITHIN).await;
    assert!(
        matches!(&result, Err(TransportError::Broken { why, .. }) if why.contains("at most")),
        "{result:?}"
    );
}
