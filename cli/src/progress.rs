//! What goes on while work takes long: one line on stderr that is written over, and only if that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use crate::printer::printable;

/// Short work is done before anybody could read it.
const SILENT: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(200);
/// Of a line; a longer one would go on in the next, where nothing writes over it.
const WIDTH_MAX: usize = 78;

/// Whether there is a line that is to be written over.
static LINE: AtomicBool = AtomicBool::new(false);

/// The line of one work. It goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    /// `None`: nobody is there to read it.
    next: Option<Instant>,
}

impl Progress {
    /// Of work that begins now.
    pub(crate) fn new() -> Self {
        Self {
            next: io::stderr().is_terminal().then(|| Instant::now() + SILENT),
        }
    }

    /// Nobody is told.
    pub(crate) fn none() -> Self {
        Self { next: None }
    }

    /// Shows the text, unless another one was shown just now.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + STEP);
        let text: String = printable(&text()).chars().take(WIDTH_MAX).collect();
        LINE.store(true, Ordering::Relaxed);
        // Nobody can be told that stderr is closed.
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "\r{text}\x1b[K").and_then(|()| stderr.flush());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        clear();
    }
}

/// Makes room for something else on stderr.
pub(crate) fn clear() {
    if LINE.swap(false, Ordering::Relaxed) {
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "\r\x1b[K").and_then(|()| stderr.flush());
    }
}

/// Does work that says nothing by itself, and shows how long it takes.
pub(crate) async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let (mut progress, started) = (Progress::new(), Instant::now());
    let mut ticks = interval(STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = ticks.tick() => progress.show(|| format!("{what}, {} s", started.elapsed().as_secs())),
        }
    }
}
