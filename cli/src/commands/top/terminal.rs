//! The terminal: keys come one by one, the screen is ours until the end, and then as it was.

use std::io::{self, Read, Write};
use std::thread;

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};

use crate::error::CliError;

/// Of a terminal that does not say.
const SIZE_DEFAULT: Size = Size { columns: 80, rows: 24 };
/// Another screen, no cursor, and no line that goes on in the next.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const END: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// In characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// What happens at a terminal.
#[derive(Debug)]
pub(super) enum Event {
    /// What came at once.
    Typed(Vec<u8>),
    Resized,
    /// It is gone.
    Closed,
}

/// The terminal at stdin and stdout. It is as it was when this is dropped.
#[derive(Debug)]
pub(super) struct Terminal {
    before: Termios,
    typed: Receiver<Vec<u8>>,
    resized: Signal,
}

impl Terminal {
    pub(super) fn take() -> Result<Self, CliError> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).map_err(io::Error::from)?;
        let resized = signal(SignalKind::window_change()).map_err(CliError::Runtime)?;
        let mut ours = before.clone();
        // Keys as they are typed, not shown, and ctrl-C and ctrl-Z among them: nobody else could put the screen right.
        ours.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        ours.special_codes[SpecialCodeIndex::VMIN] = 1;
        ours.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&stdin, OptionalActions::Now, &ours).map_err(io::Error::from)?;
        let terminal = Self {
            before,
            typed: typed()?,
            resized,
        };
        write(BEGIN)?;
        Ok(terminal)
    }

    pub(super) fn size(&self) -> Size {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size {
                columns: size.ws_col.into(),
                rows: size.ws_row.into(),
            },
            _ => SIZE_DEFAULT,
        }
    }

    /// Writes over what is there, in one piece.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut screen = String::from("\x1b[H");
        for (row, line) in lines.iter().enumerate() {
            if row > 0 {
                screen.push_str("\r\n");
            }
            screen.push_str(line);
            screen.push_str("\x1b[K");
        }
        screen.push_str("\x1b[J");
        write(&screen)
    }

    /// Waits for the next event. Dropping the future loses none.
    pub(super) async fn event(&mut self) -> Event {
        tokio::select! {
            typed = self.typed.recv() => typed.map_or(Event::Closed, Event::Typed),
            resized = self.resized.recv() => resized.map_or(Event::Closed, |()| Event::Resized),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // There is nothing else that could be tried.
        let _ = write(END);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// What is typed, from a thread that ends with the process: a read from a terminal cannot be given up.
fn typed() -> Result<Receiver<Vec<u8>>, CliError> {
    let (sender, receiver) = channel(16);
    let read = move || {
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = io::stdin().read(&mut bytes) {
            let typed = bytes.get(..count).unwrap_or_default().to_vec();
            if sender.blocking_send(typed).is_err() {
                break;
            }
        }
    };
    thread::Builder::new()
        .name("keys".to_owned())
        .spawn(read)
        .map_err(CliError::Runtime)?;
    Ok(receiver)
}
