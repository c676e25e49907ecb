//! Playing a vector: sending what it says, and comparing what comes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use boltq_tests::harness::binary::{BinaryClient, Frame, command, frame, status};
use boltq_tests::harness::eventually;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::format::{Act, Expect, Kind, Send, Step, Vector, plain_bytes};
use super::matching::{Known, is_like};
use super::place::Running;

/// For what comes when the request is sent again and again.
const SOON: Duration = Duration::from_secs(60);

/// Plays the vector.
///
/// # Errors
/// Something else came; the text says at which step.
pub(crate) fn play(vector: &Vector, running: &Running) -> Result<(), String> {
    let mut known = running.known();
    let mut lines: BTreeMap<&str, Line> = BTreeMap::new();
    for (number, step) in vector.steps.iter().enumerate() {
        let name = step.line();
        let line = lines
            .entry(name)
            .or_insert_with(|| Line::new(BinaryClient::connect(running.address(name))));
        let done = match step {
            Step::Send(send) => line.send(send, &known),
            Step::Expect(expect) => line.expect(expect, &mut known),
            Step::Do(act) if act.act == Act::HalfClose => {
                line.client.finish_sending();
                Ok(())
            }
            Step::Do(_) => {
                lines.remove(name);
                Ok(())
            }
        };
        done.map_err(|error| format!("step {} on {name:?}: {error}", number + 1))?;
    }
    lines
        .into_iter()
        .try_for_each(|(name, line)| line.end().map_err(|error| format!("at the end, on {name:?}: {error}")))
}

/// A connection.
struct Line {
    client: BinaryClient,
    /// To be written with the next bytes.
    held: Vec<u8>,
    /// What was written last.
    sent: Vec<u8>,
    /// That came while a push was waited for.
    replies: VecDeque<Frame>,
    /// That came while a reply was waited for.
    pushes: VecDeque<Frame>,
    closed: bool,
}

impl Line {
    fn new(client: BinaryClient) -> Self {
        Self {
            client,
            held: Vec::new(),
            sent: Vec::new(),
            replies: VecDeque::new(),
            pushes: VecDeque::new(),
            closed: false,
        }
    }

    fn send(&mut self, send: &Send, known: &Known) -> Result<(), String> {
        self.held.extend(send.bytes(|name| known.get(name))?);
        if !send.hold {
            self.sent = std::mem::take(&mut self.held);
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), String> {
        self.client
            .send_bytes(&self.sent)
            .map_err(|error| format!("sending: {error}"))
    }

    fn expect(&mut self, expect: &Expect, known: &mut Known) -> Result<(), String> {
        match expect.expect {
            Kind::Close => {
                self.closed = self.client.ends();
                if self.closed {
                    Ok(())
                } else {
                    Err("the connection is open, and more came".to_owned())
                }
            }
            Kind::Push if expect.any => self.push_of(expect, known),
            Kind::Push => {
                let push = self.next_push()?;
                check(expect, &push, known)
            }
            _ if expect.again => {
                let mut found = self.next_reply()?;
                eventually(SOON, "the answer that is expected", || {
                    if check(expect, &found, known).is_ok() {
                        return Some(Ok(()));
                    }
                    let next = self.write().and_then(|()| self.next_reply());
                    match next {
                        Ok(next) => found = next,
                        Err(error) => return Some(Err(error)),
                    }
                    None
                })
            }
            _ => {
                let reply = self.next_reply()?;
                check(expect, &reply, known)
            }
        }
    }

    fn next_reply(&mut self) -> Result<Frame, String> {
        if let Some(reply) = self.replies.pop_front() {
            return Ok(reply);
        }
        loop {
            let frame = self.receive()?;
            if !is_push(&frame) {
                return Ok(frame);
            }
            self.pushes.push_back(frame);
        }
    }

    fn next_push(&mut self) -> Result<Frame, String> {
        if let Some(push) = self.pushes.pop_front() {
            return Ok(push);
        }
        loop {
            let frame = self.receive()?;
            if is_push(&frame) {
                return Ok(frame);
            }
            self.replies.push_back(frame);
        }
    }

    /// The first push that is the one, whatever stands before it.
    fn push_of(&mut self, expect: &Expect, known: &mut Known) -> Result<(), String> {
        let mut others = VecDeque::new();
        loop {
            let push = self.next_push()?;
            if check(expect, &push, known).is_ok() {
                others.append(&mut self.pushes);
                self.pushes = others;
                return Ok(());
            }
            others.push_back(push);
        }
    }

    fn receive(&mut self) -> Result<Frame, String> {
        let frame = self
            .client
            .receive()
            .map_err(|error| format!("waiting for a frame: {error}"))?;
        if frame.status == status::OK && !is_push(&frame) && frame.json().get("subscriber_id").is_some() {
            return Err(format!("a reply with a subscriber_id: {}", frame.text()));
        }
        Ok(frame)
    }

    /// Nothing more may have come than was expected.
    fn end(mut self) -> Result<(), String> {
        if self.closed {
            return Ok(());
        }
        self.sent = frame(command::PING, b"");
        self.write()?;
        let pong = self.next_reply()?;
        if pong.status != status::OK || pong.json() != json!({"status": "pong"}) {
            return Err(format!("one frame more: {}", pong.text()));
        }
        match self.pushes.front() {
            None => Ok(()),
            Some(push) => Err(format!("one push more: {}", push.text())),
        }
    }
}

/// As clients tell a push from a reply.
fn is_push(frame: &Frame) -> bool {
    let filled = |body: &Value, member: &str| body[member].as_str().is_some_and(|text| !text.is_empty());
    frame.status == status::OK && {
        let body = frame.json();
        filled(&body, "subscriber_id") && filled(&body, "topic")
    }
}

fn check(expect: &Expect, found: &Frame, known: &mut Known) -> Result<(), String> {
    let shown = || format!("status {:#04x} with {:.300}", found.status, found.text());
    let wanted = match expect.expect {
        Kind::Ok | Kind::Push => status::OK,
        Kind::Error => status::ERROR,
        Kind::Empty => status::EMPTY,
        Kind::NotLeader => status::NOT_LEADER,
        Kind::Close => return Err("a close is no frame".to_owned()),
    };
    if found.status != wanted {
        return Err(format!("{:?} was expected, and came {}", expect.expect, shown()));
    }
    if let Some(bytes) = &expect.bytes
        && plain_bytes(bytes)? != frame(found.status, &found.body)
    {
        return Err(format!("other bytes: {}", shown()));
    }
    match expect.expect {
        Kind::Empty if !found.body.is_empty() => return Err("EMPTY has a body".to_owned()),
        Kind::Error => {
            let wanted = known.fill(expect.error.as_deref().unwrap_or("…"))?;
            let body = found.json();
            let text = body["error"].as_str().ok_or("an ERROR without a text")?;
            if !is_like(&wanted, text) {
                return Err(format!("the error {wanted:?} was expected, and came {text:?}"));
            }
        }
        _ => {}
    }
    if let Some(payload) = &expect.payload
        && payload_text(found) != payload
    {
        return Err(format!(
            "the payload {payload} was expected, and came {}",
            payload_text(found)
        ));
    }
    match &expect.json {
        Some(wanted) => known
            .check(wanted, &found.json())
            .map_err(|error| format!("{error} in {}", shown())),
        None => Ok(()),
    }
}

/// As it stands in the frame.
fn payload_text(frame: &Frame) -> &str {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        payload: &'a RawValue,
    }
    serde_json::from_str::<Body<'_>>(frame.text()).map_or("", |body| body.payload.get())
}
