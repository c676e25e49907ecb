//! `boltq top`: what the queues are doing, again and again.
//!
//! The server sends an overview after each interval, which [`sample`] reads. [`view`] is what the person chose, [`screen`] makes lines of
//! both, [`terminal`] is the only part that knows of a terminal. Without one, `--once` prints a frame, and `--output json` an
//! object for each look.

mod sample;
mod screen;
mod terminal;
mod view;

use std::io::{self, IsTerminal};
use std::pin::pin;

use tokio::time::{Instant, sleep_until};

use self::sample::Feed;
use self::terminal::{Event, Terminal};
use self::view::{Act, View};
use super::Context;
use super::follow::{ended, interrupted};
use crate::args::{Format, Top};
use crate::error::CliError;
use crate::printer::Overview;

pub(super) async fn run(context: &mut Context, top: Top, (addr, format): (&str, Format)) -> Result<(), CliError> {
    let mut view = View::new(top.sort, top.filter.clone());
    if top.once {
        let mut feed = Feed::open(&context.server, top.interval, &view).await?;
        feed.next(addr).await?;
        let overview = feed.next(addr).await?;
        context.printer.print(&view.arranged(overview))?;
        return Ok(());
    }
    if format == Format::Json {
        return follow(context, addr, (&top, &view)).await;
    }
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(CliError::Usage(
            "boltq top needs a terminal; without one, give --once or --output json".to_owned(),
        ));
    }
    live(context, addr, (&top, &mut view)).await
}

/// An object for each look, until it is interrupted.
async fn follow(context: &mut Context, addr: &str, (top, view): (&Top, &View)) -> Result<(), CliError> {
    let mut interrupted = pin!(interrupted()?);
    let mut feed = Feed::open(&context.server, top.interval, view).await?;
    loop {
        let overview = tokio::select! {
            biased;
            () = &mut interrupted => return Ok(()),
            overview = feed.next(addr) => overview?,
        };
        context.printer.print(&view.arranged(overview))?;
        context.printer.flush()?;
    }
}

/// On a terminal, until somebody has seen enough. A server that does not answer may come back.
async fn live(context: &Context, addr: &str, (top, view): (&Top, &mut View)) -> Result<(), CliError> {
    // The first look comes before the screen: an error belongs on a screen that stays.
    let mut first = Feed::open(&context.server, top.interval, view).await?;
    let mut overview = first.next(addr).await?;
    let mut source = Source {
        feed: Some(first),
        not_before: Instant::now(),
    };
    let mut trouble = None;
    let mut interrupted = pin!(interrupted()?);
    let mut terminal = Terminal::take()?;
    loop {
        let size = terminal.size();
        terminal.draw(&screen::live(
            &view.arranged(overview.clone()),
            (view, trouble.as_deref()),
            size,
        ))?;
        tokio::select! {
            biased;
            () = &mut interrupted => return Ok(()),
            event = terminal.event() => match event {
                Event::Typed(bytes) => {
                    if view.typed(&bytes) == Act::Quit {
                        return Ok(());
                    }
                    source.feed = source.feed.filter(|feed| feed.serves(view));
                }
                Event::Resized => {}
                Event::Closed => return Ok(()),
            },
            next = source.next(context, addr, (top, view)) => match next {
                Ok(next) => {
                    overview = next;
                    trouble = None;
                }
                Err(error) => {
                    trouble = Some(error.to_string());
                    source.feed = None;
                    source.not_before = Instant::now() + top.interval;
                }
            },
        }
    }
}

/// Where overviews come from.
struct Source {
    /// `None`: it is to be asked for again, as it has ended or something else is wanted.
    feed: Option<Feed>,
    /// A server that has just failed is not asked again at once.
    not_before: Instant,
}

impl Source {
    /// The next overview. Nothing is lost if this is given up.
    async fn next(&mut self, context: &Context, addr: &str, (top, view): (&Top, &View)) -> Result<Overview, CliError> {
        let feed = match &mut self.feed {
            Some(feed) => feed,
            none => {
                sleep_until(self.not_before).await;
                none.insert(Feed::open(&context.server, top.interval, view).await?)
            }
        };
        feed.next(addr).await
    }
}
