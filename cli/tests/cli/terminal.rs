//! A terminal that remembers what was shown on it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Longer than any machine stalls.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The other side of a terminal of 80 by 24.
pub(crate) struct Screen {
    keys: File,
    pub(crate) shown: Arc<Mutex<String>>,
}

impl Screen {
    pub(crate) fn new() -> (Self, OwnedFd) {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&ours, size).unwrap();
        let keys = File::from(ours);
        let (mut output, shown) = (keys.try_clone().unwrap(), Arc::<Mutex<String>>::default());
        let copy = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                copy.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        (Self { keys, shown }, theirs.into())
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the text was shown after what was shown before `from`, and returns where it ends.
    pub(crate) fn await_text(&self, text: &str, from: usize) -> usize {
        let started = Instant::now();
        loop {
            let shown = self.shown.lock().unwrap().clone();
            if let Some(at) = shown[from..].find(text) {
                return from + at + text.len();
            }
            assert!(started.elapsed() < PATIENCE, "no {text:?} in {shown:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

pub(crate) fn ended(mut child: Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(started.elapsed() < PATIENCE, "it does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn on_terminal(command: &mut Command, terminal: &OwnedFd) -> Child {
    command.stdin(Stdio::from(terminal.try_clone().unwrap()));
    command.stdout(Stdio::from(terminal.try_clone().unwrap()));
    command.stderr(Stdio::from(terminal.try_clone().unwrap()));
    command.spawn().unwrap()
}
