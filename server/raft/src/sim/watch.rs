//! tokio's watch channel, whose receivers are woken in the order in which they wait: tokio itself draws lots.

use std::sync::Arc;

use futures_util::FutureExt;
use openraft::async_runtime::watch::{RecvError, SendError, Watch, WatchReceiver, WatchSender};
use openraft::{OptionalSend, OptionalSync};
use tokio::sync::{Notify, watch};

/// As that of openraft on tokio, unless it is made within a process.
pub(crate) struct OrderedWatch;

/// What its receivers wait for, within a process.
type Bell = Option<Arc<Notify>>;

pub(crate) struct Sender<T> {
    channel: watch::Sender<T>,
    // Dropped after the channel, so that whoever is woken sees that it is closed.
    rings: Rings,
}

pub(crate) struct Receiver<T> {
    channel: watch::Receiver<T>,
    bell: Bell,
}

/// Rings when it goes, too.
#[derive(Clone)]
struct Rings(Bell);

impl Rings {
    fn ring(&self) {
        if let Some(bell) = &self.0 {
            bell.notify_waiters();
        }
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.ring();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            channel: self.channel.clone(),
            rings: self.rings.clone(),
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self {
            channel: self.channel.clone(),
            bell: self.bell.clone(),
        }
    }
}

impl Watch for OrderedWatch {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = watch::Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = watch::channel(init);
        let bell: Bell = super::is_simulated().then(Arc::default);
        let sender = Sender {
            channel: sender,
            rings: Rings(bell.clone()),
        };
        let receiver = Receiver {
            channel: receiver,
            bell,
        };
        (sender, receiver)
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<OrderedWatch, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        let sent = self.channel.send(value).map_err(|error| SendError(error.0));
        self.rings.ring();
        sent
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        let modified = self.channel.send_if_modified(modify);
        if modified {
            self.rings.ring();
        }
        modified
    }

    fn borrow_watched(&self) -> watch::Ref<'_, T> {
        self.channel.borrow()
    }

    fn subscribe(&self) -> Receiver<T> {
        Receiver {
            channel: self.channel.subscribe(),
            bell: self.rings.0.clone(),
        }
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<OrderedWatch, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        let Some(bell) = self.bell.clone() else {
            return self.channel.changed().await.map_err(|_| RecvError(()));
        };
        loop {
            let mut rung = std::pin::pin!(bell.notified());
            rung.as_mut().enable();
            match self.channel.changed().now_or_never() {
                Some(changed) => return changed.map_err(|_| RecvError(())),
                None => rung.await,
            }
        }
    }

    fn borrow_watched(&self) -> watch::Ref<'_, T> {
        self.channel.borrow()
    }

    fn borrow_and_update(&mut self) -> watch::Ref<'_, T> {
        self.channel.borrow_and_update()
    }
}
