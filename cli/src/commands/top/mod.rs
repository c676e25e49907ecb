//! `boltq top`: what the queues are doing, again and again.
//!
//! [`sample`] asks the server and compares with the time before, [`view`] is what the person chose, [`screen`] makes lines of
//! both, [`terminal`] is the only part that knows of a terminal. Without one, `--once` prints a frame, and `--output json` an
//! object for each look.

mod sample;
mod screen;
mod terminal;
mod view;

use std::io::{self, IsTerminal};
use std::pin::pin;

use tokio::time::{MissedTickBehavior, interval, sleep};

use self::sample::Sample;
use self::terminal::{Event, Terminal};
use self::view::{Act, View};
use super::Context;
use super::follow::interrupted;
use crate::args::{Format, Top};
use crate::error::CliError;

pub(super) async fn run(context: &mut Context, top: Top, (addr, format): (&str, Format)) -> Result<(), CliError> {
    let mut view = View::new(top.sort, top.filter.clone());
    if top.once {
        let first = Sample::take(&context.server).await?;
        sleep(top.interval).await;
        let overview = Sample::take(&context.server).await?.since(Some(&first), addr);
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
    let mut ticks = interval(top.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        tokio::select! {
            biased;
            () = &mut interrupted => return Ok(()),
            _ = ticks.tick() => {}
        }
        let sample = Sample::take(&context.server).await?;
        let overview = sample.since(last.as_ref(), addr);
        context.printer.print(&view.arranged(overview))?;
        context.printer.flush()?;
        last = Some(sample);
    }
}

/// On a terminal, until somebody has seen enough. A server that does not answer may come back.
async fn live(context: &Context, addr: &str, (top, view): (&Top, &mut View)) -> Result<(), CliError> {
    // The first look comes before the screen: an error belongs on a screen that stays.
    let mut last = Sample::take(&context.server).await?;
    let mut overview = last.since(None, addr);
    let mut trouble = None;
    let mut interrupted = pin!(interrupted()?);
    let mut terminal = Terminal::take()?;
    let mut ticks = interval(top.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
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
                }
                Event::Resized => {}
                Event::Closed => return Ok(()),
            },
            _ = ticks.tick() => match Sample::take(&context.server).await {
                Ok(sample) => {
                    overview = sample.since(Some(&last), addr);
                    last = sample;
                    trouble = None;
                }
                Err(error) => trouble = Some(error.to_string()),
            },
        }
    }
}
