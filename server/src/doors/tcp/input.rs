//! The bytes of a connection that were read and not yet used.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use boltq_core::limits::FRAME_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::frame::HEADER_BYTES;
use crate::doors::intake::{Account, Connection, Progress, Refusal};

/// Read at once at first, and again after a quiet time.
const READ_BYTES_MIN: usize = 16 << 10;
/// Read at once from a connection that always has more.
const READ_BYTES_MAX: usize = 128 << 10;

/// Of each connection, not counted. Every frame of half of it fits, whatever other connections hold.
const FREE_BYTES: usize = 2 * READ_BYTES_MIN;
/// A larger buffer is cut down when little is left in it and more is waited for.
const KEPT_BYTES_MAX: usize = 512 << 10;
/// The largest frame, and a read behind it.
const BUFFER_BYTES_MAX: usize = HEADER_BYTES + FRAME_BYTES_MAX + READ_BYTES_MAX;

/// Closing while bytes of the client are unread would reset the connection, and take replies with it that are still on
/// their way. So it is given this time and these bytes to read them and close.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;

/// Why no more bytes come.
#[derive(Debug, thiserror::Error)]
pub(in crate::doors) enum InputError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Grows with what arrives, not with what a header promises, and is given back when nothing is left in it.
#[derive(Debug)]
pub struct Input {
    bytes: Vec<u8>,
    /// Everything before it was used.
    start: usize,
    /// How often something was used.
    uses: u64,
    read_bytes: usize,
    /// Holds the capacity of `bytes`, without the part that is free.
    account: Account,
}

impl Input {
    /// With nothing in it.
    pub(in crate::doors) fn new(connection: &Arc<Connection>) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            uses: 0,
            read_bytes: READ_BYTES_MIN,
            account: connection.account(),
        }
    }

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
        self.uses += u64::from(count > 0);
    }

    /// Waits for more bytes and returns their number; 0 at the end of the stream. While it waits with nothing in hand
    /// it holds no memory. Nothing is lost when it is dropped.
    ///
    /// # Errors
    /// The connection broke; or what was begun takes too much memory, or too long.
    pub(in crate::doors) async fn fill<S: AsyncRead + Unpin>(&mut self, io: &mut S) -> Result<usize, InputError> {
        self.bytes.drain(..self.start);
        self.start = 0;
        let read = std::future::poll_fn(|context| {
            self.make_room()?;
            match pin!(io.read_buf(&mut self.bytes)).poll(context) {
                Poll::Ready(read) => Poll::Ready(read.map_err(InputError::Io)),
                Poll::Pending => match self.wait(context) {
                    Ok(()) => Poll::Pending,
                    Err(refusal) => Poll::Ready(Err(refusal.into())),
                },
            }
        })
        .await?;
        // Until the next wait the client is not to blame for whatever takes long.
        self.account.waits_no_more();
        self.adapt(read);
        Ok(read)
    }

    /// Room for a read that is worth its call: small at first, then as much as there is already, so that a header that
    /// promises megabytes costs nothing until they come.
    fn make_room(&mut self) -> Result<(), Refusal> {
        let (held, capacity) = (self.bytes.len(), self.bytes.capacity());
        let room = self.read_bytes.max(held.min(READ_BYTES_MAX));
        if capacity - held >= room / 2 {
            return Ok(());
        }
        let wanted = (held + room).max((2 * capacity).min(BUFFER_BYTES_MAX));
        if self.account.try_hold(counted(wanted)).is_ok() {
            self.bytes.reserve_exact(wanted - held);
            return Ok(());
        }
        // Smaller reads will do, unless the frame itself does not fit.
        let least = held + READ_BYTES_MIN;
        if least > capacity {
            self.account.hold(counted(least))?;
            self.bytes.reserve_exact(READ_BYTES_MIN);
        }
        Ok(())
    }

    fn wait(&mut self, context: &mut Context<'_>) -> Result<(), Refusal> {
        let held = self.bytes.len();
        if held == 0 {
            self.bytes = Vec::new();
            return self.account.hold(0);
        }
        if self.bytes.capacity() > KEPT_BYTES_MAX.max(4 * held) {
            self.bytes.shrink_to(held + READ_BYTES_MIN);
            self.account.hold(counted(self.bytes.capacity()))?;
        }
        self.account.waits(Progress::new(self.uses, held), context)
    }

    fn adapt(&mut self, read: usize) {
        if self.bytes.len() == self.bytes.capacity() {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        } else if read < self.read_bytes / 4 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
        }
    }
}

fn counted(capacity: usize) -> usize {
    capacity.saturating_sub(FREE_BYTES)
}

/// Closes a connection in good order.
pub(super) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(io: &mut S) {
    let lingering = async {
        if io.shutdown().await.is_ok() {
            discard(io).await;
        }
    };
    // Over time is fine: it was a courtesy. TLS says a word at the end too, which nobody may take.
    let _ = timeout(LINGER, lingering).await;
}

/// Waits for the end of the stream, dropping what comes before it.
async fn discard<S: AsyncRead + Unpin>(io: &mut S) {
    let mut bytes = Vec::with_capacity(READ_BYTES_MIN);
    let mut dropped = 0;
    while dropped < LINGER_BYTES_MAX {
        bytes.clear();
        match io.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(read) => dropped += read,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::doors::intake::intake_of;
    use tokio::io::AsyncWriteExt;

    /// With so much room for it and all others.
    fn input(bytes_max: usize) -> Input {
        Input::new(&intake_of(bytes_max, bytes_max, Duration::from_secs(30)).connection())
    }

    #[tokio::test]
    async fn bytes_are_kept_until_they_are_used() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let mut input = input(8 << 20);
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
        let mut input = input(8 << 20);
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
        let mut input = input(8 << 20);
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

    #[tokio::test]
    async fn a_frame_that_does_not_fit_is_refused_and_small_ones_always_fit() {
        let (mut near, mut far) = tokio::io::duplex(8 << 20);
        let mut large = input(1 << 20);
        far.write_all(&vec![7; 4 << 20]).await.unwrap();
        let refusal = loop {
            match large.fill(&mut near).await {
                Ok(_) => assert!(large.bytes.capacity() <= (1 << 20) + FREE_BYTES),
                Err(error) => break error,
            }
        };
        assert!(matches!(refusal, InputError::Refused(_)), "{refusal}");
        assert!(large.bytes().len() > 1 << 19, "{}", large.bytes().len());

        let (mut near, mut far) = tokio::io::duplex(8 << 20);
        let mut small = input(0);
        let writing = async { far.write_all(&vec![7; 4 << 20]).await.unwrap() };
        let reading = async {
            let mut read = 0;
            while read < 4 << 20 {
                read += small.fill(&mut near).await.unwrap();
                small.consume(small.bytes().len() - 100);
            }
        };
        tokio::join!(writing, reading);
    }

    #[tokio::test]
    async fn a_large_buffer_does_not_wait_for_a_small_rest() {
        let (mut near, mut far) = tokio::io::duplex(8 << 20);
        let mut input = input(8 << 20);
        far.write_all(&vec![7; 4 << 20]).await.unwrap();
        while input.bytes().len() < 4 << 20 {
            input.fill(&mut near).await.unwrap();
        }
        input.consume((4 << 20) - 10);
        tokio::select! {
            biased;
            _ = input.fill(&mut near) => panic!("nothing was sent"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(input.bytes(), [7; 10]);
        assert!(input.bytes.capacity() <= FREE_BYTES, "{}", input.bytes.capacity());
    }
}
