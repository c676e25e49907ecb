//! Rows: where consecutive records of a stream are.

use std::collections::VecDeque;

use boltq_core::{DecodeError, Seq};

use crate::types::{FileId, FrameKey};

/// `count` records of a stream that stand one after the other in the body of a frame.
///
/// Which of them are still wanted is not known, only how many: a row goes when the last one is freed, and until then it
/// is kept, and copied by compaction, as a whole. So a straggler holds at most the bytes of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// Records that are not freed; 0 is a row that is gone.
    pub(crate) live: u32,
    pub(crate) file: FileId,
    /// Offset of the frame in the file.
    pub(crate) frame: u32,
    /// Offset of the first record in the body of the frame.
    pub(crate) at: u32,
    /// Bytes of all records.
    pub(crate) bytes: u32,
}

// A backlog of ten million messages has some 200,000 rows, a queue of single messages one each: every byte counts.
const _: () = assert!(size_of::<Row>() == 32);

impl Row {
    pub(crate) fn key(&self) -> FrameKey {
        FrameKey {
            file: self.file,
            offset: self.frame,
        }
    }

    /// The sequence after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.count))
    }

    pub(crate) fn holds(&self, seq: Seq) -> bool {
        self.first <= seq.0 && seq.0 < self.end()
    }

    /// Whether `next` continues this row in the same frame.
    fn continued_by(&self, next: &Self) -> bool {
        self.key() == next.key() && self.end() == next.first && self.at.checked_add(self.bytes) == Some(next.at)
    }
}

/// Length of the record that `bytes` start with, its length field included.
pub(crate) fn record_bytes(bytes: &[u8]) -> Result<usize, DecodeError> {
    let mut reader = boltq_core::codec::Reader::new(bytes);
    reader.bytes("record").map(|record| 4 + record.len())
}

/// Cuts `row`, whose frame has the body `body`, into rows of at most `row_bytes` bytes, or of one record.
pub(crate) fn split(row: &Row, body: &[u8], row_bytes: u32) -> Result<Vec<Row>, DecodeError> {
    let misfit = DecodeError::Invalid {
        what: "records",
        why: "their lengths do not add up to the bytes they are said to have",
    };
    let start = row.at as usize;
    let end = start.checked_add(row.bytes as usize).filter(|end| *end <= body.len());
    let end = end.ok_or_else(|| misfit.clone())?;
    let mut rows: Vec<Row> = Vec::new();
    let mut at = start;
    for seq in row.first..row.end() {
        let bytes = record_bytes(&body[at..end])?;
        let bytes_u32 = u32::try_from(bytes).map_err(|_| misfit.clone())?;
        match rows.last_mut() {
            Some(last) if last.bytes + bytes_u32 <= row_bytes => {
                last.count += 1;
                last.live += 1;
                last.bytes += bytes_u32;
            }
            _ => rows.push(Row {
                first: seq,
                count: 1,
                live: 1,
                at: u32::try_from(at).map_err(|_| misfit.clone())?,
                bytes: bytes_u32,
                ..*row
            }),
        }
        at += bytes;
    }
    if at == end { Ok(rows) } else { Err(misfit) }
}

/// A row that was copied: where it was (frame and offset in its body), and what it is now.
pub(crate) type Moved = (FrameKey, u32, Row);

/// What changed for the files that rows point to.
pub(crate) trait RowChanges {
    /// A row came to be, or grew by so many bytes.
    fn added(&mut self, row: &Row, new: bool, bytes: u32);
    /// A row is gone.
    fn removed(&mut self, row: &Row);
}

/// A range was freed that is not all there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotPlaced;

/// Adds `row` to `last` if both lie together and fit into `row_bytes`; returns whether it did.
fn extend(last: &mut Row, row: &Row, row_bytes: u32, changes: &mut impl RowChanges) -> bool {
    let fits = last.bytes.saturating_add(row.bytes) <= row_bytes;
    if last.live == 0 || !last.continued_by(row) || !fits {
        return false;
    }
    last.count += row.count;
    last.live += row.live;
    last.bytes += row.bytes;
    changes.added(last, false, row.bytes);
    true
}

/// Frees what `row` has of the sequences from `first` to `end`, at least one; returns how many that are.
fn free_in(row: &mut Row, first: u64, end: u64, changes: &mut impl RowChanges) -> Result<u64, NotPlaced> {
    let overlap = end.min(row.end()) - first.max(row.first);
    let live = u64::from(row.live).checked_sub(overlap).ok_or(NotPlaced)?;
    row.live = u32::try_from(live).map_err(|_| NotPlaced)?;
    if live == 0 {
        changes.removed(row);
    }
    Ok(overlap)
}

/// The rows of one stream in order. Most streams are short: one row takes no allocation.
#[derive(Debug)]
pub(crate) enum StreamRows {
    One(Row),
    Many(Box<ManyRows>),
}

// A million streams have as many of these.
const _: () = assert!(size_of::<StreamRows>() == 40);

impl StreamRows {
    /// None if there are no rows.
    pub(crate) fn from_rows(rows: Vec<Row>) -> Option<Self> {
        match rows[..] {
            [] => None,
            [row] => Some(Self::One(row)),
            _ => Some(Self::Many(Box::new(ManyRows {
                rows: rows.into(),
                gone: 0,
            }))),
        }
    }

    /// All rows, in two parts, with those that are gone.
    fn parts(&self) -> (&[Row], &[Row]) {
        match self {
            Self::One(row) => (std::slice::from_ref(row), &[]),
            Self::Many(many) => many.rows.as_slices(),
        }
    }

    fn position(&self, seq: u64) -> usize {
        match self {
            Self::One(row) => usize::from(row.end() <= seq),
            Self::Many(many) => many.position(seq),
        }
    }

    /// The rows that are in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.iter_at(0)
    }

    /// From the first row on that ends after `seq`.
    pub(crate) fn iter_from(&self, seq: u64) -> impl Iterator<Item = &Row> {
        self.iter_at(self.position(seq))
    }

    fn iter_at(&self, position: usize) -> impl Iterator<Item = &Row> {
        let (front, back) = self.parts();
        let from = position.min(front.len());
        let rows = front[from..].iter().chain(&back[position - from..]);
        rows.filter(|row| row.live > 0)
    }

    /// Number of rows that are in use.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(row) => usize::from(row.live > 0),
            Self::Many(many) => many.rows.len() - many.gone,
        }
    }

    /// The least sequence that can be placed next.
    pub(crate) fn next(&self) -> u64 {
        match self {
            Self::One(row) => row.end(),
            Self::Many(many) => many.rows.back().map_or(0, Row::end),
        }
    }

    /// Adds a row at the end, to the last one if both lie together and fit into `row_bytes`.
    pub(crate) fn push(&mut self, row: Row, row_bytes: u32, changes: &mut impl RowChanges) {
        match self {
            Self::One(last) => {
                if !extend(last, &row, row_bytes, changes) {
                    changes.added(&row, true, row.bytes);
                    let rows = VecDeque::from([*last, row]);
                    *self = Self::Many(Box::new(ManyRows { rows, gone: 0 }));
                }
            }
            Self::Many(many) => many.push(row, row_bytes, changes),
        }
    }

    pub(crate) fn find(&self, seq: Seq) -> Option<&Row> {
        let row = match self {
            Self::One(row) => Some(row),
            Self::Many(many) => many.rows.get(many.position(seq.0)),
        };
        row.filter(|row| row.live > 0 && row.holds(seq))
    }

    pub(crate) fn free(&mut self, first: Seq, count: u64, changes: &mut impl RowChanges) -> Result<(), NotPlaced> {
        let end = first.0.saturating_add(count);
        let freed = match self {
            Self::One(row) if row.first < end && first.0 < row.end() => free_in(row, first.0, end, changes)?,
            Self::One(_) => 0,
            Self::Many(many) => {
                let freed = many.free(first.0, end, changes)?;
                self.shrink();
                freed
            }
        };
        if freed == count { Ok(()) } else { Err(NotPlaced) }
    }

    /// Puts rows of a copy in the place of those that were copied. `moved` is in order, and each of them has the first
    /// sequence and the count of the row that it replaces, which has to be where it was still.
    pub(crate) fn replace(&mut self, moved: &[Moved], row_bytes: u32, changes: &mut impl RowChanges) {
        match self {
            Self::One(row) => {
                for moved in moved {
                    replace_row(row, moved, changes);
                }
            }
            Self::Many(many) => {
                many.replace(moved, row_bytes, changes);
                self.shrink();
            }
        }
    }

    fn shrink(&mut self) {
        if let Self::Many(many) = self
            && let (1, Some(row)) = (many.rows.len(), many.rows.front())
        {
            *self = Self::One(*row);
        }
    }
}

/// Puts the row of a copy in the place of `row`, if that is the one that was copied; returns whether it is.
fn replace_row(row: &mut Row, (from, from_at, to): &Moved, changes: &mut impl RowChanges) -> bool {
    let same = row.first == to.first && row.count == to.count && row.key() == *from && row.at == *from_at;
    if row.live == 0 || !same {
        return false;
    }
    changes.removed(row);
    *row = Row { live: row.live, ..*to };
    changes.added(row, true, row.bytes);
    true
}

/// Rows of which some may be gone: these stay in between until they are many, so that finding is a binary search and freeing
/// costs what it frees.
#[derive(Debug)]
pub(crate) struct ManyRows {
    rows: VecDeque<Row>,
    gone: usize,
}

impl ManyRows {
    fn push(&mut self, row: Row, row_bytes: u32, changes: &mut impl RowChanges) {
        if self
            .rows
            .back_mut()
            .is_some_and(|last| extend(last, &row, row_bytes, changes))
        {
            return;
        }
        changes.added(&row, true, row.bytes);
        if self.rows.len() == self.rows.capacity() {
            // By a quarter: of a million histories, each would have room for as many rows again.
            self.rows.reserve_exact((self.rows.len() / 4).max(2));
        }
        self.rows.push_back(row);
    }

    fn position(&self, seq: u64) -> usize {
        match self.rows.front() {
            // Records mostly go in the order in which they came.
            Some(front) if seq < front.end() => 0,
            _ => self.rows.partition_point(|row| row.end() <= seq),
        }
    }

    fn free(&mut self, first: u64, end: u64, changes: &mut impl RowChanges) -> Result<u64, NotPlaced> {
        let mut position = self.position(first);
        let mut freed = 0;
        while let Some(row) = self.rows.get_mut(position).filter(|row| row.first < end) {
            position += 1;
            freed += free_in(row, first, end, changes)?;
            self.gone += usize::from(row.live == 0);
        }
        self.tidy();
        Ok(freed)
    }

    fn tidy(&mut self) {
        while self.rows.front().is_some_and(|row| row.live == 0) {
            self.rows.pop_front();
            self.gone -= 1;
        }
        while self.rows.back().is_some_and(|row| row.live == 0) {
            self.rows.pop_back();
            self.gone -= 1;
        }
        if self.gone > 16 && self.gone * 2 > self.rows.len() {
            self.rows.retain(|row| row.live > 0);
            self.gone = 0;
        }
        if self.rows.capacity() > 64 && self.rows.len() * 4 < self.rows.capacity() {
            self.rows.shrink_to(self.rows.len() * 2);
        }
    }

    fn replace(&mut self, moved: &[Moved], row_bytes: u32, changes: &mut impl RowChanges) {
        let mut replaced: Option<(usize, usize)> = None;
        for moved in moved {
            let position = self.position(moved.2.first);
            let Some(row) = self.rows.get_mut(position) else {
                continue;
            };
            if replace_row(row, moved, changes) {
                replaced = Some((replaced.map_or(position, |(first, _)| first), position));
            }
        }
        if let Some((first, last)) = replaced {
            self.join(first, last, row_bytes, changes);
        }
    }

    /// Joins rows from `first` to `last` that lie together now.
    fn join(&mut self, first: usize, last: usize, row_bytes: u32, changes: &mut impl RowChanges) {
        let mut into = first;
        let mut joined = false;
        for position in first + 1..=last {
            let row = self.rows[position];
            let before = &mut self.rows[into];
            if row.live == 0 || !extend(before, &row, row_bytes, changes) {
                into = position;
                continue;
            }
            changes.removed(&row);
            self.rows[position].count = 0;
            joined = true;
        }
        if joined {
            self.rows.retain(|row| row.count > 0);
        }
    }
}
