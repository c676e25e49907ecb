//! The bytes of a connection that were read and not yet used.

use std::io;
use std::pin::pin;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Read at once at first, and again after a quiet time.
const READ_BYTES_MIN: usize = 16 << 10;
/// Read at once from a connection that always has more.
const READ_BYTES_MAX: usize = 128 << 10;

/// Grows with what arrives, not with what a header promises, and is given back when nothing is left in it.
#[derive(Debug)]
pub struct Input {
    bytes: Vec<u8>,
    /// Everything before it was used.
    start: usize,
    read_bytes: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            read_bytes: READ_BYTES_MIN,
        }
    }
}

impl Input {
    /// What is there.
    pub(in crate::doors) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// What is there, for somebody else.
    pub(in crate::doors) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.drain(..self.start);
        self.bytes
    }

    /// The first `count` bytes are done with.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.bytes.len());
    }

    /// Waits for more bytes and returns their number; 0 at the end of the stream. While it waits with nothing in hand
    /// it holds no memory. Nothing is lost when it is dropped.
    pub(in crate::doors) async fn fill<S: AsyncRead + Unpin>(&mut self, io: &mut S) -> io::Result<usize> {
        self.bytes.drain(..self.start);
        self.start = 0;
        let held = self.bytes.len();
        let read = std::future::poll_fn(|cx| {
            // At most doubles: a header that promises megabytes costs nothing until they come.
            let room = self.read_bytes.max(held.min(READ_BYTES_MAX));
            if self.bytes.capacity() - held < room / 2 {
                self.bytes.reserve(room);
            }
            let read = pin!(io.read_buf(&mut self.bytes)).poll(cx);
            if read.is_pending() && held == 0 {
                self.bytes = Vec::new();
            }
            read
        })
        .await?;
        self.adapt(read);
        Ok(read)
    }

    fn adapt(&mut self, read: usize) {
        if self.bytes.len() == self.bytes.capacity() {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        } else if read < self.read_bytes / 4 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
        }
    }
}

/// Waits for the end of the stream, dropping what comes before it, `bytes_max` at most.
pub(super) async fn discard<S: AsyncRead + Unpin>(io: &mut S, bytes_max: usize) {
    let mut bytes = Vec::with_capacity(READ_BYTES_MIN);
    let mut dropped = 0;
    while dropped < bytes_max {
        bytes.clear();
        match io.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(read) => dropped += read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn bytes_are_kept_until_they_are_used() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let mut input = Input::default();
        far.write_all(b"abc").await.unwrap();
        assert_eq!(input.fill(&mut near).await.unwrap(), 3);
        input.consume(2);
        assert_eq!(input.bytes(), b"c");
        far.write_all(b"de").await.unwrap();
        assert_eq!(input.fill(&mut near).await.unwrap(), 2);
        assert_eq!(input.bytes(), b"cde");
        drop(far);
        assert_eq!(input.fill(&mut near).await.unwrap(), 0);
        assert_eq!(input.into_bytes(), b"cde");
    }

    #[tokio::test]
    async fn waiting_with_nothing_in_hand_holds_no_memory() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let mut input = Input::default();
        far.write_all(b"abc").await.unwrap();
        input.fill(&mut near).await.unwrap();
        input.consume(3);
        tokio::select! {
            biased;
            _ = input.fill(&mut near) => panic!("nothing was sent"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(input.bytes.capacity(), 0);
    }

    #[tokio::test]
    async fn the_buffer_grows_with_what_arrives() {
        let (mut near, mut far) = tokio::io::duplex(8 << 20);
        let mut input = Input::default();
        far.write_all(&vec![7; 4 << 20]).await.unwrap();
        let mut reads = 0;
        while input.bytes().len() < 4 << 20 {
            let before = input.bytes().len();
            input.fill(&mut near).await.unwrap();
            assert!(
                input.bytes.capacity() <= 2 * before + 2 * READ_BYTES_MAX,
                "{before} {}",
                input.bytes.capacity()
            );
            reads += 1;
        }
        assert!(reads < 60, "{reads}");
    }
}
