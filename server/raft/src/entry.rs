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
    joint: Option<Joint>,
}

/// Says of a command that it is a head and a number of items, so that it can take over the items of others with the same
/// head: many callers that each bring one item then make one command, with its head once and its items side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joint {
    /// Where in the command the number of items is, a u32.
    pub count_at: usize,
    /// Where the items begin. What stands before, apart from the number, is the head.
    pub items_at: usize,
    /// The number of items.
    pub count: u32,
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
        self.joint = None;
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

    /// Allows the command, if it is the only one, to be joined with others. The caller then gets the part of the outcome that
    /// belongs to its items, see [`crate::GroupHandler::share`].
    pub fn allow_joining(&mut self, joint: Joint) {
        if self.commands == 1 {
            self.joint = Some(joint);
        }
    }

    /// The commands, ended, as another node takes them: [`Proposal::from_bytes`].
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        self.end();
        self.bytes.freeze()
    }

    /// Commands that another node wrote, each of which `check` has to approve of.
    ///
    /// # Errors
    /// They end where a command does not, or what `check` says.
    pub fn from_bytes(bytes: &[u8], check: impl Fn(&[u8]) -> Result<(), DecodeError>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut commands = 0;
        while !reader.is_empty() {
            check(reader.bytes("command")?)?;
            commands += 1;
        }
        Ok(Self {
            bytes: BytesMut::from(bytes),
            commands,
            ..Self::default()
        })
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

/// Which outcomes of an entry belong to a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// The next ones, whole.
    Commands(usize),
    /// A part of one: of the next one, or of the same as the proposal before.
    Items { count: u32, same: bool },
}

/// A command at the end of the packed data that can take over more items.
struct Open {
    start: usize,
    joint: Joint,
}

impl Open {
    fn takes(&self, data: &[u8], command: &[u8], joint: &Joint) -> bool {
        let same_shape = (self.joint.count_at, self.joint.items_at) == (joint.count_at, joint.items_at);
        let own = data.get(self.start + LENGTH_BYTES..).unwrap_or_default();
        let heads = [0..joint.count_at, joint.count_at + LENGTH_BYTES..joint.items_at];
        same_shape && heads.into_iter().all(|part| own.get(part.clone()) == command.get(part))
    }

    fn add(&mut self, data: &mut BytesMut, items: &[u8], count: u32) {
        data.put_slice(items);
        self.joint.count = self.joint.count.saturating_add(count);
        let length = u32::try_from(data.len() - self.start - LENGTH_BYTES).unwrap_or(u32::MAX);
        data[self.start..self.start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        let count_at = self.start + LENGTH_BYTES + self.joint.count_at;
        data[count_at..count_at + LENGTH_BYTES].copy_from_slice(&self.joint.count.to_le_bytes());
    }
}

/// Packs proposals, which were ended, into the data of an entry, and says what of its outcomes is whose.
pub(crate) fn pack<'a>(
    time: Millis,
    proposals: impl Iterator<Item = &'a Proposal>,
    bytes: usize,
) -> (Bytes, Vec<Share>) {
    let mut data = BytesMut::with_capacity(HEADER_BYTES + bytes);
    data.put_u8(FORMAT);
    data.put_u64_le(time.0);
    let mut open: Option<Open> = None;
    let mut shares = Vec::with_capacity(proposals.size_hint().0);
    for proposal in proposals {
        let command = proposal.bytes.get(LENGTH_BYTES..).unwrap_or_default();
        match (&mut open, proposal.joint) {
            (Some(open), Some(joint)) if open.takes(&data, command, &joint) => {
                open.add(&mut data, &command[joint.items_at..], joint.count);
                shares.push(Share::Items {
                    count: joint.count,
                    same: true,
                });
            }
            (_, joint) => {
                open = joint.map(|joint| Open {
                    start: data.len(),
                    joint,
                });
                data.put_slice(&proposal.bytes);
                shares.push(match joint {
                    Some(joint) => Share::Items {
                        count: joint.count,
                        same: false,
                    },
                    None => Share::Commands(proposal.commands),
                });
            }
        }
    }
    (data.freeze(), shares)
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
        let (data, shares) = pack(Millis(7), proposals.iter(), 100);
        assert_eq!(shares, [Share::Commands(2), Share::Commands(1)]);
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
    fn commands_of_another_node_are_what_it_wrote_or_refused() {
        let bytes = proposal(&[b"one", b"", b"three"]).into_bytes();
        let read = Proposal::from_bytes(&bytes, |_| Ok(())).unwrap();
        assert_eq!((read.commands(), read.into_bytes()), (3, bytes.clone()));
        assert!(Proposal::from_bytes(&bytes[..bytes.len() - 1], |_| Ok(())).is_err());
        let no_three = |command: &[u8]| match command {
            b"three" => Err(DecodeError::Invalid { what: "x", why: "y" }),
            _ => Ok(()),
        };
        assert!(Proposal::from_bytes(&bytes, no_three).is_err());
    }

    #[test]
    fn a_cut_entry_is_refused() {
        let (data, _) = pack(Millis(7), [proposal(&[b"one"])].iter(), 100);
        for end in 0..data.len() {
            let cut = Commands::read(&data[..end]).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            assert!(cut.is_err() || end == HEADER_BYTES, "{end}");
        }
    }

    /// `head` before and behind the number of items, which are bytes.
    fn joinable(before: &[u8], behind: &[u8], items: &[u8]) -> Proposal {
        let mut proposal = Proposal::new();
        let out = proposal.begin();
        out.put_slice(before);
        let count = u32::try_from(items.len()).unwrap();
        out.put_u32_le(count);
        out.put_slice(behind);
        out.put_slice(items);
        let count_at = before.len();
        let items_at = count_at + 4 + behind.len();
        proposal.allow_joining(Joint {
            count_at,
            items_at,
            count,
        });
        proposal.end();
        proposal
    }

    #[test]
    fn commands_with_the_same_head_that_follow_each_other_become_one() {
        let proposals = [
            joinable(b"p", b"queue", b"a"),
            joinable(b"p", b"queue", b"bc"),
            joinable(b"p", b"other", b"d"),
            joinable(b"p", b"queue", b"e"),
            proposal(&[b"x"]),
            joinable(b"p", b"queue", b"f"),
            joinable(b"q", b"queue", b"g"),
            joinable(b"q", b"queue", b"h"),
        ];
        let (data, shares) = pack(Millis(7), proposals.iter(), 100);
        let read: Vec<_> = Commands::read(&data)
            .unwrap()
            .map(|c| c.unwrap().bytes.to_vec())
            .collect();
        assert_eq!(
            read,
            [
                b"p\x03\0\0\0queueabc".to_vec(),
                b"p\x01\0\0\0otherd".to_vec(),
                b"p\x01\0\0\0queuee".to_vec(),
                b"x".to_vec(),
                b"p\x01\0\0\0queuef".to_vec(),
                b"q\x02\0\0\0queuegh".to_vec(),
            ]
        );
        let items = |count, same| Share::Items { count, same };
        let wanted = [
            items(1, false),
            items(2, true),
            items(1, false),
            items(1, false),
            Share::Commands(1),
            items(1, false),
            items(1, false),
            items(1, true),
        ];
        assert_eq!(shares, wanted);
    }

    #[test]
    fn a_proposal_of_several_commands_is_not_joined() {
        let mut proposal = joinable(b"p", b"", b"a");
        proposal.begin().put_slice(b"x");
        proposal.allow_joining(Joint {
            count_at: 1,
            items_at: 5,
            count: 1,
        });
        proposal.end();
        let (_, shares) = pack(Millis(7), [joinable(b"p", b"", b"a"), proposal].iter(), 100);
        assert_eq!(shares, [Share::Items { count: 1, same: false }, Share::Commands(2)]);
    }
}
