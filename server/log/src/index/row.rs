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

/// The rows of one stream in order. Those that are gone stay in between until they are many, so that finding is a binary
/// search and freeing costs what it frees.
#[derive(Debug, Default)]
pub(crate) struct StreamRows {
    rows: VecDeque<Row>,
    gone: usize,
}

impl StreamRows {
    pub(crate) fn from_rows(rows: Vec<Row>) -> Self {
        Self {
            rows: rows.into(),
            gone: 0,
        }
    }

    /// The rows that are in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.live > 0)
    }

    /// Number of rows that are in use.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() - self.gone
    }

    /// The least sequence that can be placed next.
    pub(crate) fn next(&self) -> u64 {
        self.rows.back().map_or(0, Row::end)
    }

    /// Adds a row at the end, to the last one if both lie together and fit into `row_bytes`.
    pub(crate) fn push(&mut self, row: Row, row_bytes: u32, changes: &mut impl RowChanges) {
        if let Some(last) = self.rows.back_mut()
            && last.live > 0
            && last.continued_by(&row)
            && last.bytes.saturating_add(row.bytes) <= row_bytes
        {
            last.count += row.count;
            last.live += row.live;
            last.bytes += row.bytes;
            changes.added(last, false, row.bytes);
            return;
        }
        changes.added(&row, true, row.bytes);
        self.rows.push_back(row);
    }

    fn position(&self, seq: u64) -> usize {
        match self.rows.front() {
            // Records mostly go in the order in which they came.
            Some(front) if seq < front.end() => 0,
            _ => self.rows.partition_point(|row| row.end() <= seq),
        }
    }

    pub(crate) fn find(&self, seq: Seq) -> Option<&Row> {
        self.rows
            .get(self.position(seq.0))
            .filter(|row| row.live > 0 && row.holds(seq))
    }

    /// From the first row on that ends after `seq`.
    pub(crate) fn iter_from(&self, seq: u64) -> impl Iterator<Item = &Row> {
        self.rows.range(self.position(seq)..).filter(|row| row.live > 0)
    }

    pub(crate) fn free(&mut self, first: Seq, count: u64, changes: &mut impl RowChanges) -> Result<(), NotPlaced> {
        let end = first.0.saturating_add(count);
        let mut position = self.position(first.0);
        let mut freed = 0;
        while let Some(row) = self.rows.get_mut(position).filter(|row| row.first < end) {
            position += 1;
            let overlap = end.min(row.end()) - first.0.max(row.first);
            let live = u64::from(row.live).checked_sub(overlap).ok_or(NotPlaced)?;
            row.live = u32::try_from(live).map_err(|_| NotPlaced)?;
            freed += overlap;
            if live == 0 {
                changes.removed(row);
                self.gone += 1;
            }
        }
        self.tidy();
        if freed == count { Ok(()) } else { Err(NotPlaced) }
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

    /// Puts rows of a copy in the place of those that were copied. `moved` is in order, and each of them has the first
    /// sequence and the count of the row that it replaces, which has to be where it was still.
    pub(crate) fn replace(&mut self, moved: &[Moved], row_bytes: u32, changes: &mut impl RowChanges) {
        let mut replaced: Option<(usize, usize)> = None;
        for (from, from_at, to) in moved {
            let position = self.position(to.first);
            let Some(row) = self.rows.get_mut(position) else {
                continue;
            };
            let same = row.first == to.first && row.count == to.count && row.key() == *from && row.at == *from_at;
            if row.live == 0 || !same {
                continue;
            }
            changes.removed(row);
            *row = Row { live: row.live, ..*to };
            changes.added(row, true, row.bytes);
            replaced = Some((replaced.map_or(position, |(first, _)| first), position));
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
            let fits = before.bytes.saturating_add(row.bytes) <= row_bytes;
            if before.live == 0 || row.live == 0 || !fits || !before.continued_by(&row) {
                into = position;
                continue;
            }
            changes.removed(&row);
            changes.added(before, false, row.bytes);
            before.count += row.count;
            before.live += row.live;
            before.bytes += row.bytes;
            self.rows[position].count = 0;
            joined = true;
        }
        if joined {
            self.rows.retain(|row| row.count > 0);
        }
    }
}
