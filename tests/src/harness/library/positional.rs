//! Answers by their position.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Habits, pushed};
use crate::harness::binary::{BinaryClient, Frame, command, frame, status};

/// A quiet connection is no broken one.
const QUIET_MAX: Duration = Duration::from_secs(3_600);

/// A library that sends whatever it is asked to send, and gives answers to requests by their position, with pushes in between.
///
/// - A request that has no answer by its deadline is taken out of the row, although its answer still comes: the
///   answers behind it are then given to the wrong ones.
/// - Payloads are sent as a JSON string.
/// - `consume` knows EMPTY and ERROR; any other status is read as a message.
/// - When a connection ends, what has no answer fails, and another one is made after a pause; subscriptions are sent again, as
///   durable ones, without waiting for the answers.
#[derive(Debug)]
pub struct Positional {
    shared: Arc<Shared>,
    pushes: Mutex<Receiver<Value>>,
    reader: Option<JoinHandle<()>>,
}

/// A request that was sent.
#[derive(Debug)]
pub struct Asked {
    number: u64,
    answer: Receiver<Frame>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    habits: Habits,
    /// Locked before `row`, so that the row is that of the bytes.
    writer: Mutex<Option<BinaryClient>>,
    row: Mutex<VecDeque<(u64, Sender<Frame>)>>,
    subscriptions: Mutex<Vec<(String, String)>>,
    numbers: AtomicU64,
    connections: AtomicUsize,
    /// Frames that belong to no request.
    strays: AtomicUsize,
    stopped: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Positional {
    /// Connects, and goes on doing so until it is dropped.
    pub fn new(habits: Habits) -> Self {
        let shared = Arc::new(Shared {
            habits,
            writer: Mutex::default(),
            row: Mutex::default(),
            subscriptions: Mutex::default(),
            numbers: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            strays: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let (sender, pushes) = mpsc::channel();
        let reading = Arc::clone(&shared);
        Self {
            shared,
            pushes: Mutex::new(pushes),
            reader: Some(std::thread::spawn(move || reading.run(&sender))),
        }
    }

    /// Sends a request, and does not wait for its answer.
    ///
    /// # Errors
    /// There is no connection now.
    pub fn start(&self, code: u8, body: &Value) -> io::Result<Asked> {
        let (number, answer) = self.shared.send(code, body)?;
        let shared = Arc::clone(&self.shared);
        Ok(Asked { number, answer, shared })
    }

    /// One request and its answer.
    ///
    /// # Errors
    /// There is no connection, it ended, or no answer came in time.
    pub fn request(&self, code: u8, body: &Value) -> io::Result<Frame> {
        self.start(code, body)?.wait()
    }

    /// Publishes, the payload as a JSON string.
    ///
    /// # Errors
    /// As for [`Positional::request`].
    pub fn publish(&self, queue: &str, payload: &Value) -> io::Result<Frame> {
        self.request(
            command::PUBLISH,
            &json!({"topic": queue, "payload": payload.to_string()}),
        )
    }

    /// Takes a message. Whatever is neither EMPTY nor ERROR is one.
    ///
    /// # Errors
    /// As for [`Positional::request`], or the text of an ERROR.
    pub fn consume(&self, queue: &str) -> io::Result<Option<Value>> {
        let reply = self.request(command::CONSUME, &json!({"topic": queue}))?;
        match reply.status {
            status::EMPTY => Ok(None),
            status::ERROR => Err(io::Error::other(reply.error())),
            _ => Ok(Some(reply.json())),
        }
    }

    /// Subscribes, and does so again on each connection.
    ///
    /// # Errors
    /// As for [`Positional::request`]; it is subscribed with the next connection then.
    pub fn subscribe(&self, topic: &str, id: &str, durable: bool) -> io::Result<Frame> {
        let asked = self.request(command::CONSUME, &json!({"topic": topic, "id": id, "durable": durable}));
        let subscription = (topic.to_owned(), id.to_owned());
        let mut subscriptions = lock(&self.shared.subscriptions);
        // Once, however often it is asked for.
        if !subscriptions.contains(&subscription) {
            subscriptions.push(subscription);
        }
        asked
    }

    /// The next push, if one comes within that time.
    pub fn push(&self, within: Duration) -> Option<Value> {
        lock(&self.pushes).recv_timeout(within).ok()
    }

    /// Connections that it made.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Frames that belonged to no request.
    pub fn strays(&self) -> usize {
        self.shared.strays.load(Ordering::SeqCst)
    }
}

impl Drop for Positional {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        if let Some(writer) = &*lock(&self.shared.writer) {
            writer.hang_up();
        }
        if let Some(reader) = self.reader.take() {
            // It can only have panicked, and has said so then.
            let _ = reader.join();
        }
    }
}

impl Asked {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The connection ended, or no answer came in time.
    pub fn wait(self) -> io::Result<Frame> {
        match self.answer.recv_timeout(self.shared.habits.deadline) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::ConnectionReset.into()),
            Err(RecvTimeoutError::Timeout) => {
                lock(&self.shared.row).retain(|(number, _)| *number != self.number);
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }
}

impl Shared {
    fn send(&self, code: u8, body: &Value) -> io::Result<(u64, Receiver<Frame>)> {
        let mut writer = lock(&self.writer);
        let Some(line) = &mut *writer else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let number = self.numbers.fetch_add(1, Ordering::SeqCst);
        let (sender, answer) = mpsc::channel();
        lock(&self.row).push_back((number, sender));
        // If this fails, the reader sees it too, and lets the row go.
        let _ = line.send_bytes(&frame(code, body.to_string().as_bytes()));
        Ok((number, answer))
    }

    fn run(&self, pushes: &Sender<Value>) {
        let mut failures = 0;
        for address in self.habits.addresses.iter().cycle() {
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            match self.serve(*address, pushes) {
                Ok(()) => failures = 0,
                Err(_) => failures += 1,
            }
            *lock(&self.writer) = None;
            lock(&self.row).clear();
            std::thread::sleep(self.habits.pause_after(failures));
        }
    }

    /// Until the connection ends.
    ///
    /// # Errors
    /// There was none.
    fn serve(&self, address: SocketAddr, pushes: &Sender<Value>) -> io::Result<()> {
        let mut line = self.habits.open(address)?;
        line.set_timeout(QUIET_MAX);
        *lock(&self.writer) = Some(line.second_handle()?);
        self.connections.fetch_add(1, Ordering::SeqCst);
        if self.stopped.load(Ordering::SeqCst) {
            return Ok(());
        }
        let subscriptions = lock(&self.subscriptions).clone();
        for (topic, id) in subscriptions {
            let body = json!({"topic": topic, "id": id, "durable": true});
            // Nobody waits for the answer.
            drop(self.send(command::CONSUME, &body)?);
        }
        while let Ok(frame) = line.receive() {
            if let Some(push) = pushed(&frame) {
                // The library has gone if nobody takes it.
                let _ = pushes.send(push);
                continue;
            }
            match lock(&self.row).pop_front() {
                Some((_, waiting)) => drop(waiting.send(frame)),
                None => drop(self.strays.fetch_add(1, Ordering::SeqCst)),
            }
        }
        Ok(())
    }
}
