//! A value that others wait to see change.
//!
//! It is the channel of the [`Runtime`]: tokio draws lots for the order in which it wakes those who wait, so a simulation that
//! used it as it is would not repeat.

use std::fmt;

use openraft::AsyncRuntime;
use openraft::async_runtime::watch::{Watch, WatchReceiver, WatchSender};

use crate::runtime::Runtime;

type Channel = <Runtime as AsyncRuntime>::Watch;
type Sender<T> = <Channel as Watch>::Sender<T>;
type Receiver<T> = <Channel as Watch>::Receiver<T>;

/// The end that changes the value.
pub(crate) struct Watched<T: Copy + Send + Sync + 'static>(Sender<T>);

/// An end that sees it.
pub(crate) struct Watching<T: Copy + Send + Sync + 'static>(Receiver<T>);

impl<T: Copy + Send + Sync + 'static> Watched<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Channel::channel(value).0)
    }

    pub(crate) fn get(&self) -> T {
        *self.0.borrow_watched()
    }

    /// Wakes everybody, be it that the value is what it was.
    pub(crate) fn set(&self, value: T) {
        self.change(|old| *old = value);
    }

    /// Wakes everybody.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        self.change_if(|value| {
            change(value);
            true
        });
    }

    /// Wakes everybody if `change` says that it changed the value.
    pub(crate) fn change_if(&self, change: impl FnOnce(&mut T) -> bool) {
        self.0.send_if_modified(change);
    }

    /// One that sees changes from now on.
    pub(crate) fn watch(&self) -> Watching<T> {
        Watching(self.0.subscribe())
    }
}

impl<T: Copy + Send + Sync + 'static> Watching<T> {
    pub(crate) fn get(&self) -> T {
        *self.0.borrow_watched()
    }

    /// As [`Watching::get`]; what it returns is no change any more.
    pub(crate) fn see(&mut self) -> T {
        *self.0.borrow_and_update()
    }

    /// Waits for a change past the last one that was seen, and sees it; false if there will be none.
    pub(crate) async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }

    /// Returns the first value, of now or later, that is as wanted; none if there will be none.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        loop {
            let value = self.see();
            if wanted(&value) {
                return Some(value);
            }
            if !self.changed().await {
                return None;
            }
        }
    }
}

impl<T: Copy + Send + Sync + 'static> fmt::Debug for Watched<T>
where
    T: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.get()).finish()
    }
}
