//! What somebody has who has shown a key, until the key is gone.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

use super::role::{Need, Role, Roles};

/// A key as long as it is in the configuration.
#[derive(Debug)]
pub(super) struct Holder {
    id: Box<str>,
    roles: Roles,
    revoked: AtomicBool,
    changed: Notify,
}

impl Holder {
    pub(super) fn new(id: &str, roles: Roles) -> Arc<Self> {
        Arc::new(Self {
            id: id.into(),
            roles,
            revoked: AtomicBool::new(false),
            changed: Notify::new(),
        })
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.id == other.id && self.roles == other.roles
    }

    pub(super) fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }
}

/// The right to do what a key is for. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Grant(Arc<Holder>);

impl Grant {
    pub(super) fn new(holder: &Arc<Holder>) -> Self {
        Self(holder.clone())
    }

    /// Whether both are of the same key.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What the key is called.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// What it is for.
    #[must_use]
    pub fn roles(&self) -> Roles {
        self.0.roles
    }

    /// Whether an operation may be done that needs this.
    #[must_use]
    pub fn may(&self, need: Need) -> bool {
        self.0.roles.may(need)
    }

    /// Whether the key is gone, or is for other things now.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.0.revoked.load(Ordering::Acquire)
    }

    /// Returns when it is.
    pub async fn revoked(&self) {
        let changed = self.0.changed.notified();
        let mut changed = std::pin::pin!(changed);
        // It has to hear before it looks, so that it does not miss what happens in between.
        changed.as_mut().enable();
        if !self.is_revoked() {
            changed.await;
        }
    }

    /// Does what was asked for with the key. What has begun is finished, be the key gone meanwhile; only who waits for messages
    /// gets none any more, and so that none is taken for nobody, its wait ends with the key: `None`.
    pub async fn serve<T>(&self, call: impl Future<Output = T>, need: Need) -> Option<T> {
        if need != Need::Role(Role::Consumer) {
            return Some(call.await);
        }
        tokio::select! {
            biased;
            answer = call => Some(answer),
            () = self.revoked() => None,
        }
    }
}

/// An answer that ends when the key is revoked that it was asked for with. `B` is the answer, and `end` makes the trailers it
/// then ends with, if there are some.
///
/// An answer that is there as a whole is sent as it is: what it tells has happened. One that waits costs a place among those who
/// are told.
pub struct UntilRevoked<B> {
    body: B,
    grant: Grant,
    /// Frames that are sent without a look at the key: of an answer that has not waited, one with the data and one with the trailers.
    unlooked: u8,
    /// While the answer waits.
    revoked: Option<BoxFuture<'static, ()>>,
    end: Option<fn() -> Option<HeaderMap>>,
}

impl<B> UntilRevoked<B> {
    /// See the type.
    pub fn new(body: B, grant: Grant, end: fn() -> Option<HeaderMap>) -> Self {
        Self {
            body,
            grant,
            unlooked: 2,
            revoked: None,
            end: Some(end),
        }
    }
}

impl<B: Body + Unpin> Body for UntilRevoked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some(end) = self.end else {
            return Poll::Ready(None);
        };
        if self.unlooked > 0 || !self.grant.is_revoked() {
            let frame = Pin::new(&mut self.body).poll_frame(context);
            if let Poll::Ready(ready) = &frame {
                self.unlooked = self.unlooked.saturating_sub(1);
                let is_last = ready
                    .as_ref()
                    .is_none_or(|frame| frame.as_ref().map_or(true, Frame::is_trailers));
                if is_last {
                    self.end = None;
                }
                return frame;
            }
            self.unlooked = 0;
            if self.revoked.is_none() {
                let grant = self.grant.clone();
                self.revoked = Some(Box::pin(async move { grant.revoked().await }));
            }
            if let Some(revoked) = &mut self.revoked
                && revoked.as_mut().poll(context).is_pending()
            {
                return Poll::Pending;
            }
        }
        self.end = None;
        Poll::Ready(end().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures_util::FutureExt;
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;
    use crate::access::role::Role;

    fn holder() -> Arc<Holder> {
        Holder::new("a", Roles::of(&[Role::Consumer]))
    }

    fn trailers() -> Option<HeaderMap> {
        Some(HeaderMap::new())
    }

    fn frame(bytes: &'static [u8]) -> Result<Frame<Bytes>, Infallible> {
        Ok(Frame::data(Bytes::from_static(bytes)))
    }

    #[tokio::test]
    async fn an_answer_that_is_there_as_a_whole_is_sent_although_the_key_is_gone() {
        let holder = holder();
        holder.revoke();
        let frames = [frame(b"stored"), Ok(Frame::trailers(HeaderMap::new()))];
        let unary = StreamBody::new(futures_util::stream::iter(frames));
        let sent = UntilRevoked::new(unary, Grant::new(&holder), || panic!("it is not cut"))
            .collect()
            .await;
        assert_eq!(sent.expect("frames").to_bytes(), "stored");
        let whole = UntilRevoked::new(Full::new(Bytes::from_static(b"all")), Grant::new(&holder), || None);
        assert_eq!(whole.collect().await.expect("frames").to_bytes(), "all");
    }

    #[tokio::test]
    async fn a_stream_ends_with_the_key_whether_it_waits_or_not() {
        let holder = holder();
        let endless = StreamBody::new(futures_util::stream::repeat_with(|| frame(b"more")));
        let mut body = UntilRevoked::new(endless, Grant::new(&holder), trailers);
        for _ in 0..10 {
            assert!(body.frame().await.expect("more").expect("a frame").is_data());
        }
        holder.revoke();
        assert!(body.frame().await.expect("trailers").expect("a frame").is_trailers());
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn who_waits_for_messages_is_let_go_with_the_key_and_who_changes_something_is_not() {
        let holder = holder();
        let grant = Grant::new(&holder);
        let mut waits = std::pin::pin!(grant.serve(std::future::pending::<()>(), Need::Role(Role::Consumer)));
        assert!(waits.as_mut().now_or_never().is_none());
        holder.revoke();
        assert_eq!(waits.await, None);
        let publishes = grant.serve(tokio::task::yield_now(), Need::Role(Role::Producer));
        assert_eq!(publishes.await, Some(()));
    }
}
