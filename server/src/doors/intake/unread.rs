//! What of a request nobody reads, because it was answered before.
//!
//! A request that is refused by its head or by its length is answered while its body is on its way. HTTP/1 would close the
//! connection then, with bytes of the client unread, which resets it; the reset takes the answer away from a client that is
//! still sending. So the rest of the body is received and dropped: up to [`BYTES_MAX`] and [`TIME_MAX`]. A client that sends
//! more, or does not go on, is closed all the same. HTTP/2 ends the stream alone, and needs nothing of this.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Twice the largest request.
const BYTES_MAX: usize = 8 << 20;
/// For all of it.
const TIME_MAX: Duration = Duration::from_secs(5);

/// A body of which the rest is received when it is dropped.
pub(super) struct Unread<B: Received> {
    /// `None`: it has ended or failed, or nothing is to be received.
    body: Option<B>,
    size: SizeHint,
    version: Version,
}

/// A body that comes from a connection.
pub(super) trait Received: Body<Data = Bytes> + Send + Unpin + 'static {}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Received for B {}

impl<B: Received> Unread<B> {
    pub(super) fn new(body: B, version: Version) -> Self {
        let size = body.size_hint();
        let body = (!body.is_end_stream()).then_some(body);
        Self { body, size, version }
    }
}

impl<B: Received> Body for Unread<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = Pin::new(&mut *body).poll_frame(context);
        let goes_on = matches!(&frame, Poll::Pending | Poll::Ready(Some(Ok(_)))) && !body.is_end_stream();
        let size = body.size_hint();
        self.size = size;
        if !goes_on {
            self.body = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

impl<B: Received> Drop for Unread<B> {
    fn drop(&mut self) {
        if self.version < Version::HTTP_2
            && let Some(body) = self.body.take()
            && let Ok(runtime) = Handle::try_current()
        {
            // It ends with the connection, if not before.
            runtime.spawn(timeout(TIME_MAX, discard(body)));
        }
    }
}

async fn discard<B: Received>(mut body: B) {
    let mut dropped = 0;
    while dropped < BYTES_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        dropped += frame.data_ref().map_or(0, Bytes::len);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const CHUNK_BYTES: usize = 1 << 10;

    /// So many chunks, and how many bytes of them were received.
    struct Chunks {
        left: usize,
        received: Arc<AtomicUsize>,
    }

    impl Body for Chunks {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            self.left -= 1;
            self.received.fetch_add(CHUNK_BYTES, Ordering::SeqCst);
            Poll::Ready(Some(Ok(Frame::data(vec![0; CHUNK_BYTES].into()))))
        }
    }

    /// Bytes that are received of a body of so many chunks, of which the reader takes some.
    async fn received(chunks: usize, read: usize, version: Version) -> usize {
        let received = Arc::new(AtomicUsize::new(0));
        let chunks = Chunks {
            left: chunks,
            received: Arc::clone(&received),
        };
        let mut body = Unread::new(chunks, version);
        for _ in 0..read {
            body.frame().await.unwrap().unwrap();
        }
        drop(body);
        // Nobody has the other half any more when the rest was received, or was not wanted.
        while Arc::strong_count(&received) > 1 {
            tokio::task::yield_now().await;
        }
        received.load(Ordering::SeqCst)
    }

    #[tokio::test]
    async fn the_rest_of_a_body_is_received_within_a_bound() {
        for version in [Version::HTTP_10, Version::HTTP_11] {
            assert_eq!(received(10, 0, version).await, 10 * CHUNK_BYTES);
            assert_eq!(received(10, 3, version).await, 10 * CHUNK_BYTES);
            assert_eq!(received(0, 0, version).await, 0);
            assert_eq!(received(usize::MAX, 3, version).await, BYTES_MAX + 3 * CHUNK_BYTES);
        }
        assert_eq!(received(10, 3, Version::HTTP_2).await, 3 * CHUNK_BYTES);
    }

    #[tokio::test]
    async fn a_reader_gets_all_of_it_and_its_end() {
        let received = Arc::new(AtomicUsize::new(0));
        let mut body = Unread::new(Chunks { left: 2, received }, Version::HTTP_11);
        for _ in 0..2 {
            assert_eq!(
                body.frame().await.unwrap().unwrap().into_data().unwrap().len(),
                CHUNK_BYTES
            );
        }
        assert!(body.frame().await.is_none());
        assert!(body.is_end_stream() && body.frame().await.is_none());
    }
}
