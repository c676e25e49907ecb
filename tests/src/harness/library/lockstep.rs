//! One command at a time.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Habits, leader, pushed};
use crate::harness::binary::{BinaryClient, Frame, command, status};
use crate::harness::http;

/// For a new connection, whatever happens to servers meanwhile.
const CONNECTED_WITHIN: Duration = Duration::from_secs(60);
/// From one node to the next.
const REDIRECTS_MAX: usize = 10;

/// A library that asks one thing at a time.
///
/// - Each command has a deadline, for reading and writing, which then holds for what is pushed too: a quiet subscription
///   times out and is made again.
/// - A command that fails is sent once more on the next connection.
/// - NOT_LEADER with an address leads to another connection there, and the command is sent again.
/// - A connection that is left is not closed.
/// - Subscriptions are made again on each connection, as durable ones, whatever they were.
/// - A second reader may take replies away.
/// - The cache is asked over HTTP, at the next port below.
#[derive(Debug)]
pub struct Lockstep {
    habits: Habits,
    line: Option<BinaryClient>,
    /// Of the addresses, the one to try next.
    next: usize,
    /// Where the leader was said to be.
    hint: Option<SocketAddr>,
    left: Vec<BinaryClient>,
    subscriptions: Vec<(String, String)>,
    pushes: VecDeque<Value>,
    loses_every: Option<usize>,
    commands: usize,
    connections: usize,
    unanswered: usize,
}

impl Lockstep {
    /// Connects with the first command.
    pub fn new(habits: Habits) -> Self {
        Self {
            habits,
            line: None,
            next: 0,
            hint: None,
            left: Vec::new(),
            subscriptions: Vec::new(),
            pushes: VecDeque::new(),
            loses_every: None,
            commands: 0,
            connections: 0,
            unanswered: 0,
        }
    }

    /// The second reader takes one of so many replies away. The command has timed out then, which is not waited for.
    #[must_use]
    pub fn losing(mut self, every: usize) -> Self {
        self.loses_every = Some(every);
        self
    }

    /// For the commands and pushes from now on.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.habits.deadline = deadline;
        if let Some(line) = &mut self.line {
            line.set_timeout(deadline);
        }
    }

    /// Connections that it made.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Commands that were sent, and of which it knows no outcome.
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// One command, once more if it fails, and at the leader if another node leads.
    ///
    /// # Errors
    /// It failed twice.
    pub fn command(&mut self, code: u8, body: &Value) -> io::Result<Frame> {
        let mut redirects = 0;
        let mut again = true;
        loop {
            match self.ask(code, &body.to_string()) {
                Ok(reply) => match leader(&reply) {
                    Some(leader) if redirects < REDIRECTS_MAX => {
                        redirects += 1;
                        self.hint = Some(leader);
                        self.leave();
                    }
                    _ => return Ok(reply),
                },
                Err(error) => {
                    self.leave();
                    if !std::mem::take(&mut again) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn ask(&mut self, code: u8, body: &str) -> io::Result<Frame> {
        self.connect()?;
        let Some(line) = &mut self.line else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        self.commands += 1;
        let lost = self
            .loses_every
            .is_some_and(|every| self.commands.is_multiple_of(every));
        line.send(code, body.as_bytes())?;
        // From here on it may have been carried out.
        self.unanswered += 1;
        let reply = reply(line, &mut self.pushes)?;
        if lost {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.unanswered -= 1;
        Ok(reply)
    }

    /// Leaves the connection as it is.
    fn leave(&mut self) {
        self.left.extend(self.line.take());
    }

    /// Connects if there is no connection, and subscribes there again.
    ///
    /// # Errors
    /// No node took it for a long time.
    pub fn connect(&mut self) -> io::Result<()> {
        let mut failures = 0;
        let mut waited = Duration::ZERO;
        while self.line.is_none() {
            match self.try_connect() {
                Ok(line) => self.line = Some(line),
                Err(error) if waited > CONNECTED_WITHIN => return Err(error),
                Err(_) => {
                    let pause = self.habits.pause_after(failures);
                    std::thread::sleep(pause);
                    waited += pause;
                    failures += 1;
                }
            }
        }
        Ok(())
    }

    fn try_connect(&mut self) -> io::Result<BinaryClient> {
        let address = self.hint.take().unwrap_or_else(|| {
            self.next += 1;
            self.habits.addresses[(self.next - 1) % self.habits.addresses.len()]
        });
        let mut line = self.habits.open(address)?;
        self.connections += 1;
        for (topic, id) in &self.subscriptions {
            let body = json!({"topic": topic, "id": id, "durable": true}).to_string();
            line.send(command::CONSUME, body.as_bytes())?;
            let reply = reply(&mut line, &mut self.pushes)?;
            if reply.status != status::OK {
                self.hint = leader(&reply);
                return Err(io::Error::other(reply.text()));
            }
        }
        Ok(line)
    }

    /// Subscribes.
    ///
    /// # Panics
    /// When it is refused.
    pub fn subscribe(&mut self, topic: &str, id: &str, durable: bool) {
        let body = json!({"topic": topic, "id": id, "durable": durable});
        let reply = self.command(command::CONSUME, &body).expect("an answer");
        assert_eq!(reply.ok(), json!({"status": "subscribed"}));
        self.subscriptions.push((topic.to_owned(), id.to_owned()));
    }

    /// Waits for a push until the deadline, and if there is none, connects and subscribes again.
    pub fn push(&mut self) -> Option<Value> {
        if let Some(push) = self.pushes.pop_front() {
            return Some(push);
        }
        self.connect().ok()?;
        let received = self.line.as_mut()?.receive();
        match received {
            Ok(frame) => pushed(&frame),
            Err(_) => {
                self.leave();
                None
            }
        }
    }

    /// A request to the cache.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn cache(&self, method: &str, path: &str, body: &str) -> io::Result<http::Response> {
        let mut address = self.habits.addresses[0];
        address.set_port(address.port() - 1);
        let key = self.habits.api_key.as_deref().unwrap_or_default();
        let headers = [("x-api-key", key), ("content-type", "application/json")];
        http::request(address, method, path, &headers, body.as_bytes())
    }
}

/// The next frame that is no push.
fn reply(line: &mut BinaryClient, pushes: &mut VecDeque<Value>) -> io::Result<Frame> {
    loop {
        let frame = line.receive()?;
        match pushed(&frame) {
            Some(push) => pushes.push_back(push),
            None => return Ok(frame),
        }
    }
}
