//! Positions of readers.
//!
//! A position belongs to a stream, a group and a member of it, and is the sequence that the member wants next. It never goes back,
//! and never beyond the sequence that the next record gets. Positions end with their stream; until then nothing makes them end
//! but being forgotten by a command.
//!
//! One tree for all, as most streams have one position or two: 32 bytes in it, some 65 with what is empty there, and the names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, StreamId};
use bytes::{BufMut, BytesMut};

use crate::format::{check, put_short, read_short};

/// Longest name of a group of readers, and of a member, in bytes.
pub const CURSOR_NAME_BYTES_MAX: usize = 255;
/// Positions of streams that are no more which one command forgets at most.
const FORGET_MAX: usize = 64;

/// Ordered by stream, then by group, so that the members of one are beside each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    stream: u64,
    /// u8 length, group, member.
    names: Box<[u8]>,
}

impl Key {
    fn new(stream: StreamId, group: &str, member: &str) -> Self {
        let mut names = Vec::with_capacity(1 + group.len() + member.len());
        // Longer ones are refused where commands and snapshots are read.
        names.push(u8::try_from(group.len()).unwrap_or(u8::MAX));
        names.extend_from_slice(group.as_bytes());
        names.extend_from_slice(member.as_bytes());
        Self {
            stream: stream.0,
            names: names.into_boxed_slice(),
        }
    }

    fn split(&self) -> (&str, &str) {
        let (group_bytes, names) = self.names.split_first().unwrap_or((&0, &[]));
        let (group, member) = names
            .split_at_checked(usize::from(*group_bytes))
            .unwrap_or((names, &[]));
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        (text(group), text(member))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cursors {
    positions: BTreeMap<Key, u64>,
    /// Streams that are no more, in the order in which they went, as long as they may have positions.
    gone: VecDeque<u64>,
}

impl Cursors {
    /// Those included whose streams are no more and that take memory still.
    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(crate) fn get(&self, stream: StreamId, group: &str, member: &str) -> Option<u64> {
        self.positions.get(&Key::new(stream, group, member)).copied()
    }

    /// Moves a position to `to`, unless it is there or beyond, and returns where it is then. `None`: it would be a new one, and there
    /// are `cursors_max` already.
    pub(crate) fn commit(&mut self, stream: StreamId, names: (&str, &str), to: u64, cursors_max: u32) -> Option<u64> {
        let key = Key::new(stream, names.0, names.1);
        if let Some(position) = self.positions.get_mut(&key) {
            *position = to.max(*position);
            return Some(*position);
        }
        if self.positions.len() >= cursors_max as usize {
            return None;
        }
        self.positions.insert(key, to);
        Some(to)
    }

    pub(crate) fn forget(&mut self, stream: StreamId, group: &str, member: &str) -> bool {
        self.positions.remove(&Key::new(stream, group, member)).is_some()
    }

    /// Group, member and position of those of a stream whose groups have names behind the one of `after`, or that name and members
    /// behind: first the groups with short names, then in byte order.
    pub(crate) fn of_stream(
        &self,
        stream: StreamId,
        after: Option<(&str, &str)>,
    ) -> impl Iterator<Item = (&str, &str, u64)> {
        let start = after.map_or(
            Key {
                stream: stream.0,
                names: Box::default(),
            },
            |(group, member)| Key::new(stream, group, member),
        );
        let excluded = Bound::Excluded(start);
        let behind = self.positions.range((excluded, Bound::Unbounded));
        let of_stream = behind.take_while(move |(key, _)| key.stream == stream.0);
        of_stream.map(|(key, position)| {
            let (group, member) = key.split();
            (group, member, *position)
        })
    }

    /// Members of a group of a stream, in byte order, with their positions: those behind `after`.
    pub(crate) fn members(
        &self,
        stream: StreamId,
        group: &str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&str, u64)> {
        let first = Key::new(stream, group, "");
        let start = match after {
            None => Bound::Included(first.clone()),
            Some(member) => Bound::Excluded(Key::new(stream, group, member)),
        };
        let behind = self.positions.range((start, Bound::Unbounded));
        let of_group =
            behind.take_while(move |(key, _)| key.stream == first.stream && key.names.starts_with(&first.names));
        of_group.map(|(key, position)| (key.split().1, *position))
    }

    /// Forgets the positions of a stream, some with each of the next commands.
    pub(crate) fn end(&mut self, stream: StreamId) {
        if self.of_stream(stream, None).next().is_some() {
            self.gone.push_back(stream.0);
        }
    }

    /// Forgets some positions of streams that are no more. A topic that a million readers had is no reason to stand still.
    pub(crate) fn forget_some(&mut self) {
        let mut left = FORGET_MAX;
        while left > 0
            && let Some(&stream) = self.gone.front()
        {
            let start = Key {
                stream,
                names: Box::default(),
            };
            let next = self.positions.range(start..).next();
            match next.filter(|(key, _)| key.stream == stream).map(|(key, _)| key.clone()) {
                Some(key) => {
                    self.positions.remove(&key);
                    left -= 1;
                }
                None => drop(self.gone.pop_front()),
            }
        }
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.positions.is_empty() && self.gone.is_empty()
    }

    /// ```text
    /// u32 number of streams that are no more; u64 each, in the order in which they went
    /// u32 number of positions; each, in the order of stream and names:
    ///     u64 stream, u8 length and group, u8 length and member, u64 position
    /// ```
    pub(crate) fn write(&self, out: &mut BytesMut) {
        codec::put_len(out, self.gone.len());
        self.gone.iter().for_each(|stream| out.put_u64_le(*stream));
        codec::put_len(out, self.positions.len());
        for (key, position) in &self.positions {
            let (group, member) = key.split();
            out.put_u64_le(key.stream);
            put_short(out, group);
            put_short(out, member);
            out.put_u64_le(*position);
        }
    }

    /// `next_seq` says which sequence the next record of a stream gets, of those that there are.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        last_stream: u64,
        next_seq: &BTreeMap<u64, u64>,
    ) -> Result<Self, DecodeError> {
        const WHAT: &str = "positions";
        let mut cursors = Self::default();
        let mut gone = BTreeSet::new();
        for _ in 0..reader.count(8, WHAT)? {
            let stream = reader.u64(WHAT)?;
            let went = (1..=last_stream).contains(&stream) && !next_seq.contains_key(&stream);
            check(went && gone.insert(stream), WHAT, "a stream is not one that went")?;
            cursors.gone.push_back(stream);
        }
        for _ in 0..reader.count(18, WHAT)? {
            let stream = reader.u64(WHAT)?;
            let (group, member) = (read_short(reader, WHAT)?, read_short(reader, WHAT)?);
            let position = reader.u64(WHAT)?;
            match next_seq.get(&stream) {
                Some(next) => check((1..=*next).contains(&position), WHAT, "one is beyond the end")?,
                None => check(gone.contains(&stream), WHAT, "one is of a stream that never was")?,
            }
            let key = Key::new(StreamId(stream), group, member);
            let last = cursors.positions.last_key_value();
            check(last.is_none_or(|(last, _)| *last < key), WHAT, "they are not in order")?;
            cursors.positions.insert(key, position);
        }
        Ok(cursors)
    }
}
