//! Times of an HTTP/1.1 connection that the HTTP library does not keep by itself.
//!
//! It knows one time, for the next head to be whole, whether it has begun or not. Clients keep connections open for later, so
//! that time has to be long, and a head that has begun must not take as long: half a request holds a place among the connections
//! like a whole one. Nor does it mind a client that reads nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// For a head, from its first byte to its end; for the first one from the connection on.
    pub(super) head: Duration,
    /// To take any bytes of an answer, unless that is a stream of events.
    pub(super) write: Duration,
}

/// What a connection is told of its requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    begun: AtomicU64,
    under_way: AtomicUsize,
    streams: AtomicUsize,
}

impl Requests {
    /// A head was whole.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay {
            requests: self.clone(),
            streams: false,
        }
    }
}

/// A request that is not answered yet to its end.
pub(super) struct UnderWay {
    requests: Arc<Requests>,
    streams: bool,
}

impl UnderWay {
    /// The answer, until the end of which it is under way.
    pub(super) fn answer<B>(mut self, answer: Response<B>) -> Response<Tracked<B>> {
        if is_stream(answer.headers()) {
            self.streams = true;
            self.requests.streams.fetch_add(1, Ordering::Relaxed);
        }
        answer.map(|body| Tracked { body, _under_way: self })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.requests.under_way.fetch_sub(1, Ordering::Relaxed);
        if self.streams {
            self.requests.streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind == "text/event-stream")
}

/// The body of an answer.
pub(super) struct Tracked<B> {
    body: B,
    _under_way: UnderWay,
}

impl<B: Body<Data: Buf> + Unpin> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that ends with an error when its client takes too long.
pub(super) struct Timed<S> {
    inner: S,
    times: Times,
    requests: Arc<Requests>,
    /// Heads that were whole when a read was last asked for.
    begun: u64,
    /// For the head that has begun.
    head: Option<Pin<Box<Sleep>>>,
    /// For the bytes that wait to be taken.
    write: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    pub(super) fn new(inner: S, times: Times) -> Self {
        Self {
            inner,
            times,
            requests: Arc::default(),
            begun: 0,
            head: Some(Box::pin(sleep(times.head))),
            write: None,
        }
    }

    pub(super) fn requests(&self) -> Arc<Requests> {
        self.requests.clone()
    }

    /// Whether a head may be on its way: not while a request is, whose body is none of our business.
    fn awaits_head(&mut self) -> bool {
        let begun = self.requests.begun.load(Ordering::Relaxed);
        if begun != self.begun {
            self.begun = begun;
            self.head = None;
        }
        self.requests.under_way.load(Ordering::Relaxed) == 0
    }

    fn wrote<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() || self.requests.streams.load(Ordering::Relaxed) > 0 {
            self.write = None;
            return written;
        }
        let within = self.times.write;
        let deadline = self.write.get_or_insert_with(|| Box::pin(sleep(within)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = out.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(context, out);
        if !this.awaits_head() {
            return read;
        }
        if read.is_ready() {
            if out.filled().len() > before {
                let within = this.times.head;
                this.head.get_or_insert_with(|| Box::pin(sleep(within)));
            }
            return read;
        }
        let Some(deadline) = &mut this.head else { return read };
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(context, bytes);
        this.wrote(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(context, bytes);
        this.wrote(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(context);
        this.wrote(flushed, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.inner).poll_shutdown(context);
        this.wrote(shut, context)
    }
}
