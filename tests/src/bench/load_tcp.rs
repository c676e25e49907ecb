//! Load on the binary protocol.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::load::{Failure, Meter};
use super::{PAYLOAD_BYTES, QUEUE};
use crate::harness::binary::{command, frame, status};

/// Taken from a socket at once, by the client and by the bare server.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// A publish of a JSON string of [`PAYLOAD_BYTES`] characters.
fn publish_request() -> Vec<u8> {
    let body = json!({"topic": QUEUE, "payload": "x".repeat(PAYLOAD_BYTES)}).to_string();
    frame(command::PUBLISH, body.as_bytes())
}

/// What the broker answers, with an id of its length.
pub(super) fn publish_reply() -> Vec<u8> {
    let body = format!(r#"{{"id":"{}","topic":"{QUEUE}"}}"#, "0".repeat(32));
    frame(status::OK, body.as_bytes())
}

/// Counts frames in a stream of bytes that comes in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct FrameCounter {
    header: [u8; 5],
    header_bytes: usize,
    body_left: usize,
}

impl FrameCounter {
    /// Takes the next piece, reports the first byte of each header that ends in it, and returns how many frames end in it.
    pub(super) fn feed(&mut self, mut piece: &[u8], mut begun: impl FnMut(u8)) -> usize {
        let mut frames = 0;
        while !piece.is_empty() {
            if self.header_bytes < self.header.len() {
                let take = piece.len().min(self.header.len() - self.header_bytes);
                self.header[self.header_bytes..self.header_bytes + take].copy_from_slice(&piece[..take]);
                self.header_bytes += take;
                piece = &piece[take..];
                if self.header_bytes < self.header.len() {
                    break;
                }
                let [code, length @ ..] = self.header;
                begun(code);
                self.body_left = u32::from_le_bytes(length) as usize;
            }
            let take = piece.len().min(self.body_left);
            self.body_left -= take;
            piece = &piece[take..];
            if self.body_left == 0 {
                self.header_bytes = 0;
                frames += 1;
            }
        }
        frames
    }
}

/// Keeps `connections` connections busy: each writes `depth` publishes at once, waits for their replies, and again.
pub(super) async fn publish(
    address: SocketAddr,
    connections: usize,
    depth: usize,
    meter: Meter,
) -> Result<Infallible, Failure> {
    let mut running = JoinSet::new();
    for _ in 0..connections {
        running.spawn(publish_on_one(address, depth, meter.clone()));
    }
    match running.join_next().await {
        Some(Ok(Err(error))) => Err(error),
        Some(Ok(Ok(never))) => match never {},
        Some(Err(error)) => Err(error.into()),
        None => Err("no connection was asked for".into()),
    }
}

async fn publish_on_one(address: SocketAddr, depth: usize, meter: Meter) -> Result<Infallible, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let requests = publish_request().repeat(depth);
    let mut buffer = vec![0; READ_BYTES];
    let mut counter = FrameCounter::default();
    let mut refused = None;
    loop {
        stream.write_all(&requests).await?;
        let mut answered = 0;
        while answered < depth {
            let count = stream.read(&mut buffer).await?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            answered += counter.feed(&buffer[..count], |code| {
                if code != status::OK {
                    refused = Some(code);
                }
            });
            if let Some(code) = refused {
                return Err(format!("a publish was answered with status {code:#04x}").into());
            }
        }
        meter.add(depth as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_however_the_stream_is_cut() {
        let stream = [frame(1, b"abc"), frame(2, b""), frame(0, &[9; 300])].concat();
        for piece_bytes in [1, 2, 3, 5, 7, 100, 1000] {
            let mut counter = FrameCounter::default();
            let mut codes = Vec::new();
            let frames: usize = stream
                .chunks(piece_bytes)
                .map(|piece| counter.feed(piece, |code| codes.push(code)))
                .sum();
            assert_eq!((frames, codes), (3, vec![1, 2, 0]), "pieces of {piece_bytes}");
        }
    }
}
