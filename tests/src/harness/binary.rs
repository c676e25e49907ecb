//! A client of the binary protocol, written from its specification alone.
//!
//! It blocks, matches replies by position, and keeps frames as they came: a test wants to see bytes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::tls::TlsStream;

/// Every reply comes at once; a server that keeps a client waiting so long is at fault.
pub(super) const REPLY_WITHIN: Duration = Duration::from_secs(20);
const HEADER_BYTES: usize = 5;

/// Status bytes of replies.
pub mod status {
    /// Done.
    pub const OK: u8 = 0x00;
    /// Refused or failed; the body says why.
    pub const ERROR: u8 = 0x01;
    /// Nothing ready.
    pub const EMPTY: u8 = 0x02;
    /// Another node leads; the body says which.
    pub const NOT_LEADER: u8 = 0x03;
}

/// Command bytes of requests.
#[expect(missing_docs, reason = "the names of the specification")]
pub mod command {
    pub const PUBLISH: u8 = 0x01;
    pub const PUBLISH_TOPIC: u8 = 0x02;
    pub const CONSUME: u8 = 0x03;
    pub const ACK: u8 = 0x04;
    pub const NACK: u8 = 0x05;
    pub const PING: u8 = 0x06;
    pub const STATS: u8 = 0x07;
    pub const AUTH: u8 = 0x08;
    pub const PREFETCH: u8 = 0x09;
    pub const CLUSTER_JOIN: u8 = 0x10;
    pub const CLUSTER_LEAVE: u8 = 0x11;
    pub const CLUSTER_STATUS: u8 = 0x12;
    pub const CONFIRM_SELECT: u8 = 0x13;
    pub const EXCHANGE_DECLARE: u8 = 0x14;
    pub const EXCHANGE_DELETE: u8 = 0x15;
    pub const BIND_QUEUE: u8 = 0x16;
    pub const UNBIND_QUEUE: u8 = 0x17;
    pub const PUBLISH_EXCHANGE: u8 = 0x18;
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Status byte.
    pub status: u8,
    /// Body as it came.
    pub body: Vec<u8>,
}

impl Frame {
    /// The body as text.
    ///
    /// # Panics
    /// When it is not UTF-8, which the protocol requires.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of UTF-8")
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    /// The JSON body of an OK reply.
    ///
    /// # Panics
    /// When the status is another one.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, status::OK, "{}", self.text());
        self.json()
    }

    /// The text of an ERROR reply.
    ///
    /// # Panics
    /// When the status is another one.
    #[track_caller]
    pub fn error(&self) -> String {
        assert_eq!(self.status, status::ERROR, "{}", self.text());
        self.json()["error"].as_str().expect("a text").to_owned()
    }
}

/// A message that was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The whole body.
    pub body: Value,
}

impl Taken {
    /// The payload.
    pub fn payload(&self) -> &Value {
        &self.body["payload"]
    }

    /// Failed attempts so far.
    pub fn retry(&self) -> u64 {
        self.body["retry"].as_u64().expect("retry is always there")
    }
}

/// A request in bytes.
pub fn frame(command: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a body under 4 GiB");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.push(command);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A connection.
#[derive(Debug)]
pub struct BinaryClient {
    stream: Wire,
}

/// Bytes, encrypted or not.
#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Wire {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl BinaryClient {
    /// Connects.
    ///
    /// # Panics
    /// When nobody listens.
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"))
    }

    /// Connects.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_WITHIN))?;
        stream.set_write_timeout(Some(REPLY_WITHIN))?;
        Ok(Self {
            stream: Wire::Plain(stream),
        })
    }

    /// Speaks over a connection that is there.
    pub fn over_tls(stream: TlsStream) -> Self {
        Self {
            stream: Wire::Tls(Box::new(stream)),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends a request and does not wait.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send(&mut self, command: u8, body: &[u8]) -> io::Result<()> {
        self.send_bytes(&frame(command, body))
    }

    /// Reads the next reply.
    ///
    /// # Errors
    /// The connection ended (`UnexpectedEof`), or nothing came in time.
    pub fn receive(&mut self) -> io::Result<Frame> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let [status, length @ ..] = header;
        let mut body = vec![0; u32::from_le_bytes(length) as usize];
        self.stream.read_exact(&mut body)?;
        Ok(Frame { status, body })
    }

    /// Whether the server closes the connection without sending anything more.
    pub fn ends(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
            ),
        }
    }

    /// Another handle of the same connection, so that one thread reads and another one writes.
    ///
    /// # Errors
    /// There is no handle left, or the connection is encrypted.
    pub fn second_handle(&self) -> io::Result<Self> {
        match &self.stream {
            Wire::Plain(stream) => Ok(Self {
                stream: Wire::Plain(stream.try_clone()?),
            }),
            Wire::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Ends the connection for all of its handles.
    pub fn hang_up(&self) {
        // It fails only when the connection has ended.
        let _ = self.stream.tcp().shutdown(Shutdown::Both);
    }

    /// Sends no more; replies can still be read.
    ///
    /// # Panics
    /// When the connection is gone.
    pub fn finish_sending(&mut self) {
        self.stream.tcp().shutdown(Shutdown::Write).expect("an open connection");
    }

    /// Waits at most so long for each reply.
    ///
    /// # Panics
    /// When `timeout` is zero.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.stream
            .tcp()
            .set_read_timeout(Some(timeout))
            .expect("a timeout that is not zero");
    }

    /// One request and its reply, the body as text.
    ///
    /// # Panics
    /// When the connection ends.
    pub fn call(&mut self, command: u8, body: &str) -> Frame {
        self.try_call(command, body)
            .unwrap_or_else(|error| panic!("{command:#04x} {body:.200}: {error}"))
    }

    /// One request and its reply.
    ///
    /// # Errors
    /// The connection ended.
    pub fn try_call(&mut self, command: u8, body: &str) -> io::Result<Frame> {
        self.send(command, body.as_bytes())?;
        self.receive()
    }

    /// Publishes `{"topic", "payload"}` and returns the id.
    ///
    /// # Panics
    /// When it is refused.
    pub fn publish(&mut self, queue: &str, payload: &Value) -> String {
        self.publish_with(&json!({"topic": queue, "payload": payload}))
    }

    /// Publishes a body and returns the id.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn publish_with(&mut self, body: &Value) -> String {
        let reply = self.call(command::PUBLISH, &body.to_string());
        reply.ok()["id"].as_str().expect("an id").to_owned()
    }

    /// Takes a message, if one is ready.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn consume(&mut self, queue: &str) -> Option<Taken> {
        let reply = self.call(command::CONSUME, &json!({"topic": queue}).to_string());
        if reply.status == status::EMPTY {
            assert_eq!(reply.body, b"", "EMPTY has no body");
            return None;
        }
        let body = reply.ok();
        let id = body["id"].as_str().expect("an id").to_owned();
        Some(Taken { id, body })
    }

    /// Acknowledges.
    pub fn ack(&mut self, id: &str) -> Frame {
        self.call(command::ACK, &json!({"id": id}).to_string())
    }

    /// Gives back as failed.
    pub fn nack(&mut self, id: &str) -> Frame {
        self.call(command::NACK, &json!({"id": id}).to_string())
    }

    /// STATS.
    ///
    /// # Panics
    /// When it is refused.
    pub fn stats(&mut self) -> Value {
        self.call(command::STATS, "").ok()
    }
}
