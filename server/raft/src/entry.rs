//! Commands on their way into an entry, and out of it.
//!
//! ```text
//! u8  format, 1
//! u64 time of the leader, Unix milliseconds
//! commands, each: u32 length, bytes
//! ```

use boltq_core::codec::Reader;
use boltq_core::{DecodeError, Millis};
use bytes::{BufMut, Bytes, BytesMut};

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 9;
const LENGTH_BYTES: usize = 4;

/// Commands of one caller. They stay together in one entry, and their outcomes come back together.
#[derive(Debug, Default)]
pub struct Proposal {
    bytes: BytesMut,
    commands: usize,
    open: Option<usize>,
}

impl Proposal {
    /// No commands yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a command, after ending the one before: what is appended to the buffer until the next `begin` or
    /// [`Proposal::end`] is the command.
    pub fn begin(&mut self) -> &mut BytesMut {
        self.end();
        self.open = Some(self.bytes.len());
        self.commands += 1;
        self.bytes.put_u32_le(0);
        &mut self.bytes
    }

    /// The buffer, to go on with the command that was begun.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Ends the command that was begun, if there is one.
    pub fn end(&mut self) {
        if let Some(start) = self.open.take() {
            // Batches are limited to a few MiB at the doors.
            let length = u32::try_from(self.bytes.len() - start - LENGTH_BYTES).unwrap_or(u32::MAX);
            self.bytes[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Number of commands.
    #[must_use]
    pub fn commands(&self) -> usize {
        self.commands
    }

    /// Bytes of all commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }
}

/// Packs proposals, which were ended, into the data of an entry.
pub(crate) fn pack<'a>(time: Millis, proposals: impl Iterator<Item = &'a Proposal>, bytes: usize) -> Bytes {
    let mut data = BytesMut::with_capacity(HEADER_BYTES + bytes);
    data.put_u8(FORMAT);
    data.put_u64_le(time.0);
    for proposal in proposals {
        data.put_slice(&proposal.bytes);
    }
    data.freeze()
}

/// One command of an entry.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// Where the command starts in the data of the entry.
    pub offset: u32,
    /// The command.
    pub bytes: &'a [u8],
}

/// The commands of an entry, in order.
#[derive(Debug, Clone)]
pub struct Commands<'a> {
    time: Millis,
    reader: Reader<'a>,
}

impl<'a> Commands<'a> {
    /// Reads the data of an entry.
    ///
    /// # Errors
    /// The header is of an unknown version.
    pub fn read(data: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(data);
        let format = reader.u8("entry format")?;
        if format != FORMAT {
            return Err(DecodeError::Unknown {
                what: "entry format",
                value: u64::from(format),
            });
        }
        let time = Millis(reader.u64("entry time")?);
        Ok(Self { time, reader })
    }

    /// The leader's time.
    #[must_use]
    pub fn time(&self) -> Millis {
        self.time
    }
}

impl<'a> Iterator for Commands<'a> {
    type Item = Result<Command<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let offset = self.reader.position() + LENGTH_BYTES;
        Some(self.reader.bytes("command").and_then(|bytes| {
            let offset = u32::try_from(offset).map_err(|_| DecodeError::Invalid {
                what: "entry",
                why: "longer than 4 GiB",
            })?;
            Ok(Command { offset, bytes })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(commands: &[&[u8]]) -> Proposal {
        let mut proposal = Proposal::new();
        for command in commands {
            proposal.begin().put_slice(command);
        }
        proposal.end();
        proposal
    }

    #[test]
    fn commands_come_back_in_order_with_their_offsets() {
        let proposals = [proposal(&[b"one", b""]), proposal(&[b"three"])];
        let data = pack(Millis(7), proposals.iter(), 100);
        let commands = Commands::read(&data).unwrap();
        assert_eq!(commands.time(), Millis(7));
        let read: Vec<_> = commands
            .map(Result::unwrap)
            .map(|c| (c.offset, c.bytes.to_vec()))
            .collect();
        assert_eq!(read, [(13, b"one".to_vec()), (20, Vec::new()), (24, b"three".to_vec())]);
        for (offset, bytes) in read {
            assert_eq!(&data[offset as usize..offset as usize + bytes.len()], &bytes[..]);
        }
    }

    #[test]
    fn a_cut_entry_is_refused() {
        let data = pack(Millis(7), [proposal(&[b"one"])].iter(), 100);
        for end in 0..data.len() {
            let cut = Commands::read(&data[..end]).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            assert!(cut.is_err() || end == HEADER_BYTES, "{end}");
        }
    }
}
