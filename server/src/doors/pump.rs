//! From a subscription to the door of its client.
//!
//! A task of its own waits for messages and hands them on in batches, the next one when the one before was taken. What a
//! client has not taken thus stays where it can be counted: in the buffer of a listener, or in the backlog.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::service::{Pushes, Subscribed, SubscriptionEnd};

/// For a client to be told that its subscription has ended.
const TELL_MAX: Duration = Duration::from_secs(30);

/// What a subscription has for its client.
pub(super) enum Item<R> {
    /// Messages.
    Pushes(Batch<R>),
    /// There is nothing more, for this reason.
    End(SubscriptionEnd),
}

/// Messages on their way to a client.
pub(super) struct Batch<R> {
    /// The messages.
    pub(super) pushes: Arc<Pushes>,
    /// The room that they take, if it is counted.
    pub(super) room: Option<R>,
    /// To be told when the client has them, with the positions of those that it cannot be given. Dropped: it does not.
    pub(super) taken: oneshot::Sender<Vec<usize>>,
}

/// Runs until the subscription ends or nobody takes its messages any more. `wrap` says whose they are.
pub(super) async fn pump<R, F, T>(
    mut subscribed: Subscribed,
    room: impl Fn() -> F,
    out: mpsc::Sender<T>,
    wrap: impl Fn(&Subscribed, Item<R>) -> T,
) where
    F: Future<Output = R>,
{
    loop {
        let next = tokio::select! {
            next = subscribed.next(&room) => next,
            () = out.closed() => return,
        };
        let (pushes, room) = match next {
            Ok(next) => next,
            Err(end) => return finish(subscribed, end, &out, wrap).await,
        };
        let pushes = Arc::new(pushes);
        let (taken, waits) = oneshot::channel();
        let batch = Batch {
            pushes: pushes.clone(),
            room,
            taken,
        };
        let item = wrap(&subscribed, Item::Pushes(batch));
        let handed_over = async {
            out.send(item).await.ok()?;
            waits.await.ok()
        };
        let outcome = tokio::select! {
            outcome = handed_over => outcome,
            () = subscribed.ended() => return finish(subscribed, SubscriptionEnd::Replaced, &out, wrap).await,
        };
        match outcome.as_deref() {
            None => return,
            Some([]) => subscribed.delivered(&pushes),
            Some(failed) => settle_some(&mut subscribed, &pushes, failed),
        }
    }
}

async fn finish<R, T>(
    subscribed: Subscribed,
    end: SubscriptionEnd,
    out: &mpsc::Sender<T>,
    wrap: impl Fn(&Subscribed, Item<R>) -> T,
) {
    let item = wrap(&subscribed, Item::End(end));
    // A place that is wanted by others is not kept for a client that takes nothing.
    drop(subscribed);
    let _ = timeout(TELL_MAX, out.send(item)).await;
}

fn settle_some(subscribed: &mut Subscribed, pushes: &Pushes, failed: &[usize]) {
    let (mut given, mut not) = (Pushes::default(), Vec::new());
    for (position, push) in pushes.messages.iter().enumerate() {
        if failed.contains(&position) {
            not.push(push.clone());
        } else {
            given.messages.push(push.clone());
        }
    }
    subscribed.delivered(&given);
    subscribed.undeliverable(&not);
}

/// Batches as a stream: each counts as taken when the next one is asked for.
pub(super) struct Taking<R> {
    items: mpsc::Receiver<Item<R>>,
    last: Option<(oneshot::Sender<Vec<usize>>, Option<R>)>,
}

impl<R> Taking<R> {
    pub(super) fn new(items: mpsc::Receiver<Item<R>>) -> Self {
        Self { items, last: None }
    }
}

impl<R: Unpin> Stream for Taking<R> {
    type Item = Result<Arc<Pushes>, SubscriptionEnd>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some((taken, room)) = self.last.take() {
            drop(room);
            // A subscription that has ended does not need to know.
            let _ = taken.send(Vec::new());
        }
        let next = ready!(self.items.poll_recv(context));
        Poll::Ready(next.map(|item| match item {
            Item::Pushes(Batch { pushes, room, taken }) => {
                self.last = Some((taken, room));
                Ok(pushes)
            }
            Item::End(end) => Err(end),
        }))
    }
}
