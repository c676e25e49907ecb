//! Processes: tasks that belong together.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

thread_local! {
    /// The process that runs on this thread now.
    static CURRENT: RefCell<Option<Arc<Inner>>> = const { RefCell::new(None) };
}

/// A fault that is built in on purpose, to see that the simulation finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// A follower keeps entries that its leader does not have, and confirms the leader's at these places.
    KeepsDivergentTail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Paused,
    Killed,
}

#[derive(Debug)]
struct Inner {
    tasks: Mutex<Tasks>,
    chance: Mutex<u64>,
    broken: Option<Break>,
}

#[derive(Debug)]
struct Tasks {
    state: State,
    next: u64,
    /// Of tasks that wait, by their numbers, so that they are woken in order.
    wakers: BTreeMap<u64, Waker>,
}

/// The process of a node; clones are the same one.
#[derive(Debug, Clone)]
pub struct Process(Arc<Inner>);

impl Process {
    /// One that runs. Its chance comes from `seed`.
    #[must_use]
    pub fn new(seed: u64, broken: Option<Break>) -> Self {
        Self(Arc::new(Inner {
            tasks: Mutex::new(Tasks {
                state: State::Runs,
                next: 0,
                wakers: BTreeMap::new(),
            }),
            chance: Mutex::new(seed),
            broken,
        }))
    }

    /// Runs a future, and the tasks that it starts, in this process. When the process is killed, it never ends.
    pub fn run<F: Future>(&self, future: F) -> Run<F> {
        let mut tasks = self.0.tasks.lock();
        tasks.next += 1;
        Run {
            process: self.0.clone(),
            task: tasks.next,
            future: Some(Box::pin(future)),
        }
    }

    /// Nothing runs any more until [`Process::resume`].
    pub fn pause(&self) {
        self.set(State::Paused);
    }

    /// Goes on.
    pub fn resume(&self) {
        self.set(State::Runs);
    }

    /// Nothing runs any more.
    pub fn kill(&self) {
        self.set(State::Killed);
    }

    fn set(&self, state: State) {
        let wakers = {
            let mut tasks = self.0.tasks.lock();
            if tasks.state == State::Killed {
                return;
            }
            tasks.state = state;
            tasks.wakers.clone()
        };
        for waker in wakers.into_values() {
            waker.wake();
        }
    }

    /// Whether it was killed.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.0.tasks.lock().state == State::Killed
    }

    /// Whether it runs, neither paused nor killed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.tasks.lock().state == State::Runs
    }

    /// The one that the caller runs in.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.with_borrow(|current| current.clone().map(Self))
    }

    /// The next random number of this process.
    pub(crate) fn random(&self) -> u64 {
        // splitmix64
        let mut state = self.0.chance.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

pub(crate) fn is_simulated() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Whether the process that the caller runs in is broken in this way.
pub(crate) fn is_broken(how: Break) -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(|current| current.broken == Some(how)))
}

/// A future that runs in a process.
#[derive(Debug)]
pub struct Run<F> {
    process: Arc<Inner>,
    task: u64,
    future: Option<Pin<Box<F>>>,
}

/// Puts the process back that ran before.
struct Entered(Option<Arc<Inner>>);

impl Entered {
    fn enter(process: Arc<Inner>) -> Self {
        Self(CURRENT.replace(Some(process)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl<F: Future> Future for Run<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let state = {
            let mut tasks = this.process.tasks.lock();
            tasks.wakers.insert(this.task, context.waker().clone());
            tasks.state
        };
        let _entered = Entered::enter(this.process.clone());
        match state {
            State::Paused => return Poll::Pending,
            State::Killed => {
                this.future = None;
                return Poll::Pending;
            }
            State::Runs => {}
        }
        let Some(future) = &mut this.future else {
            return Poll::Pending;
        };
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            this.future = None;
        }
        polled
    }
}

impl<F> Drop for Run<F> {
    fn drop(&mut self) {
        let _entered = Entered::enter(self.process.clone());
        self.future = None;
        self.process.tasks.lock().wakers.remove(&self.task);
    }
}
