//! The body of a request, counted as it arrives.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::BoxError;
use bytes::Bytes;
use http::Request;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use tower::{Layer, Service};

use super::account::Account;
use super::budget::{RETRY_AFTER, Refusal};
use super::framing::Framing;
use super::watch::Progress;
use crate::doors::grpc::DOMAIN;

/// What a request holds: counted by its body, given back with its answer.
#[derive(Debug, Clone)]
pub(super) struct Open {
    account: Arc<Mutex<Account>>,
    /// Whatever the body is.
    base: usize,
}

impl Open {
    /// `account` holds `base`.
    pub(super) fn new(account: Account, base: usize) -> Self {
        Self {
            account: Arc::new(Mutex::new(account)),
            base,
        }
    }

    fn hold(&self, bytes: usize) -> Result<(), Refusal> {
        self.account.lock().hold(self.base + bytes)
    }
}

/// What of a body is counted, and until when.
#[derive(Debug)]
enum Parts {
    /// The body is one message, which is held until the request is answered.
    One { received: usize },
    /// gRPC messages. One is held until the next is asked for: then it was taken.
    Many(Framing),
}

/// A body that ends with an error when it takes too much, or too long.
#[derive(Debug)]
pub(super) struct Metered<B> {
    inner: B,
    open: Open,
    parts: Parts,
    held: usize,
    waits: bool,
    ended: bool,
    /// The error for the reader of this body.
    error: fn(Refusal) -> BoxError,
}

impl<B> Metered<B> {
    /// For a reader that takes all of it.
    pub(super) fn one(inner: B, open: Open, error: fn(Refusal) -> BoxError) -> Self {
        Self::new(inner, open, Parts::One { received: 0 }, error)
    }

    fn many(inner: B, open: Open, error: fn(Refusal) -> BoxError) -> Self {
        Self::new(inner, open, Parts::Many(Framing::default()), error)
    }

    fn new(inner: B, open: Open, parts: Parts, error: fn(Refusal) -> BoxError) -> Self {
        Self {
            inner,
            open,
            parts,
            held: 0,
            waits: false,
            ended: false,
            error,
        }
    }

    /// The reader asks for more, so it has taken what was whole.
    fn give_back(&mut self) {
        if let Parts::Many(framing) = &self.parts
            && framing.to_hold() < self.held
        {
            self.held = framing.to_hold();
            // Less is never refused.
            let _ = self.open.hold(self.held);
        }
    }

    fn count(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let wanted = match &mut self.parts {
            Parts::One { received } => {
                *received += bytes.len();
                received.saturating_sub(self.open.base)
            }
            Parts::Many(framing) => {
                framing.advance(bytes);
                framing.to_hold()
            }
        };
        if wanted > self.held {
            self.open.hold(wanted)?;
            self.held = wanted;
        }
        Ok(())
    }

    fn wait(&mut self, context: &mut Context<'_>) -> Result<(), Refusal> {
        let progress = match &self.parts {
            Parts::One { received } => Progress::new(0, *received),
            Parts::Many(framing) if framing.unfinished() == 0 => {
                self.wait_no_more();
                return Ok(());
            }
            Parts::Many(framing) => Progress::new(framing.whole(), framing.unfinished()),
        };
        self.waits = true;
        self.open.account.lock().waits(progress, context)
    }

    fn wait_no_more(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.open.account.lock().waits_no_more();
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.ended = true;
        self.wait_no_more();
        Poll::Ready(Some(Err((self.error)(refusal))))
    }
}

impl<B> Body for Metered<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        this.give_back();
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => match frame.data_ref().map(|bytes| this.count(bytes)) {
                Some(Err(refusal)) => this.refuse(refusal),
                Some(Ok(())) | None => Poll::Ready(Some(Ok(frame))),
            },
            Poll::Ready(end) => {
                this.wait_no_more();
                Poll::Ready(end.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => match this.wait(context) {
                Ok(()) => Poll::Pending,
                Err(refusal) => this.refuse(refusal),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> Drop for Metered<B> {
    fn drop(&mut self) {
        self.wait_no_more();
    }
}

/// Counts bodies of gRPC requests. Sits behind the translation of gRPC-Web, so that there is one kind of them.
#[derive(Clone)]
pub(in crate::doors) struct MessageLayer {
    streams: &'static [&'static str],
}

impl MessageLayer {
    /// `streams` are the paths of methods that take a stream of messages. All others take one.
    pub(in crate::doors) fn new(streams: &'static [&'static str]) -> Self {
        Self { streams }
    }
}

impl<S> Layer<S> for MessageLayer {
    type Service = MessageService<S>;

    fn layer(&self, inner: S) -> MessageService<S> {
        MessageService {
            inner,
            streams: self.streams,
        }
    }
}

#[derive(Clone)]
pub(in crate::doors) struct MessageService<S> {
    inner: S,
    streams: &'static [&'static str],
}

impl<S> Service<Request<axum::body::Body>> for MessageService<S>
where
    S: Service<Request<axum::body::Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<axum::body::Body>) -> S::Future {
        let Some(open) = request.extensions_mut().remove::<Open>() else {
            return self.inner.call(request);
        };
        let metered = if self.streams.contains(&request.uri().path()) {
            Metered::many
        } else {
            Metered::one
        };
        let error = |refusal: Refusal| -> BoxError { Box::new(Status::from(refusal)) };
        self.inner
            .call(request.map(|body| axum::body::Body::new(metered(body, open, error))))
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let mut metadata = HashMap::new();
        let (code, reason) = match refusal {
            Refusal::Connection { .. } => (Code::ResourceExhausted, "TOO_MANY_UNFINISHED_REQUESTS"),
            Refusal::Node { .. } => {
                metadata.insert("retry_after_ms".to_owned(), RETRY_AFTER.as_millis().to_string());
                (Code::ResourceExhausted, "TOO_MANY_UNFINISHED_REQUESTS")
            }
            Refusal::Stalled { .. } => (Code::DeadlineExceeded, "REQUEST_STALLED"),
        };
        let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
        Self::with_error_details(code, refusal.to_string(), details)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;
    use std::time::Duration;

    use super::super::budget::tests::intake;
    use super::*;

    const BASE: usize = 10;

    struct Chunks(VecDeque<Vec<u8>>);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            match self.0.pop_front() {
                Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk.into())))),
                None => Poll::Pending,
            }
        }
    }

    fn open(bytes_max: usize) -> Open {
        let connection = intake(bytes_max, bytes_max, Duration::from_secs(30)).connection();
        let mut account = connection.account();
        account.hold(BASE).unwrap();
        Open::new(account, BASE)
    }

    fn left(open: &Open, bytes_max: usize) -> usize {
        let connection = open.account.lock().connection().clone();
        let mut other = connection.account();
        (0..=bytes_max).rev().find(|bytes| other.hold(*bytes).is_ok()).unwrap()
    }

    fn poll(body: &mut Metered<Chunks>) -> Poll<Option<Result<usize, String>>> {
        let frame = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        frame.map(|end| {
            end.map(|frame| {
                let bytes = |frame: Frame<Bytes>| frame.into_data().unwrap().len();
                frame.map(bytes).map_err(|error| error.to_string())
            })
        })
    }

    fn text(refusal: Refusal) -> BoxError {
        refusal.to_string().into()
    }

    fn message(length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 0, length];
        bytes.resize(5 + usize::from(length), 7);
        bytes
    }

    #[test]
    fn a_message_of_a_stream_is_held_until_the_next_is_asked_for() {
        let open = open(100);
        let whole = message(50);
        let chunks = [whole[..20].to_vec(), whole[20..].to_vec(), message(70), message(3)];
        let mut body = Metered::many(Chunks(chunks.into()), open.clone(), text);
        assert_eq!(poll(&mut body), Poll::Ready(Some(Ok(20))));
        assert_eq!(left(&open, 100), 100 - BASE - 55);
        assert_eq!(poll(&mut body), Poll::Ready(Some(Ok(35))));
        assert_eq!(left(&open, 100), 100 - BASE - 55);
        // In one piece: not counted.
        assert_eq!(poll(&mut body), Poll::Ready(Some(Ok(75))));
        assert_eq!(left(&open, 100), 100 - BASE);
        assert_eq!(poll(&mut body), Poll::Ready(Some(Ok(8))));
        assert!(poll(&mut body).is_pending());
    }

    #[test]
    fn the_only_message_is_held_until_the_request_is_answered() {
        let open = open(100);
        let chunks = [vec![0; 30], vec![0; 30]];
        let mut body = Metered::one(Chunks(chunks.into()), open.clone(), text);
        while poll(&mut body).is_ready() {}
        drop(body);
        // What is within the base costs no more than the base.
        assert_eq!(left(&open, 100), 100 - 60);
    }

    #[test]
    fn what_does_not_fit_ends_the_body() {
        let open = open(100);
        let chunks = [vec![0; 60], vec![0; 60], vec![0; 60]];
        let mut body = Metered::one(Chunks(chunks.into()), open, text);
        assert_eq!(poll(&mut body), Poll::Ready(Some(Ok(60))));
        let Poll::Ready(Some(Err(error))) = poll(&mut body) else {
            panic!("120 of 100 bytes")
        };
        assert!(error.contains("max_request_bytes"), "{error}");
        assert_eq!(poll(&mut body), Poll::Ready(None));
    }
}
