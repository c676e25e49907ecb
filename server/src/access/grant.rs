//! What somebody has who has shown a key, until the key is gone.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

use super::role::{Need, Roles};

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
}

/// An answer that ends when the key is revoked that it was asked for with. `B` is the answer, and `end` makes the trailers it
/// then ends with, if there are some.
///
/// An answer that is there as a whole costs a look at a flag, and one that waits the same and a place among those who are told.
pub struct UntilRevoked<B> {
    body: B,
    grant: Grant,
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
        if !self.grant.is_revoked() {
            let frame = Pin::new(&mut self.body).poll_frame(context);
            if frame.is_ready() {
                return frame;
            }
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
