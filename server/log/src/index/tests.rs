//! The index against a model that knows every record.

use std::collections::{BTreeMap, BTreeSet};

use boltq_core::{Seq, StreamId};
use proptest::prelude::*;

use super::*;
use crate::types::{FileId, FrameKey};

const RECORD_BYTES: u32 = 10;
const ROW_BYTES: u32 = 50;

/// Rows and bytes by file, as accounts would have them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Books(BTreeMap<u32, (i64, i64)>);

impl RowChanges for Books {
    fn added(&mut self, row: &Row, new: bool, bytes: u32) {
        let (rows, total) = self.0.entry(row.file.0).or_default();
        *rows += i64::from(new);
        *total += i64::from(bytes);
    }

    fn removed(&mut self, row: &Row) {
        let (rows, total) = self.0.entry(row.file.0).or_default();
        *rows -= 1;
        *total -= i64::from(row.bytes);
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Records in frames of one file each.
    Place {
        stream: u64,
        count: u32,
        same_frame: bool,
    },
    Free {
        stream: u64,
        from: prop::sample::Index,
        count: u64,
    },
    Erase {
        stream: u64,
        at: prop::sample::Index,
    },
    /// All rows of a file move into another one, without the bytes of what is erased.
    Move {
        file: prop::sample::Index,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u64..3, 1u32..20, any::<bool>())
            .prop_map(|(stream, count, same_frame)| Step::Place { stream, count, same_frame }),
        4 => (0u64..3, any::<prop::sample::Index>(), 1u64..30)
            .prop_map(|(stream, from, count)| Step::Free { stream, from, count }),
        2 => (0u64..3, any::<prop::sample::Index>()).prop_map(|(stream, at)| Step::Erase { stream, at }),
        1 => any::<prop::sample::Index>().prop_map(|file| Step::Move { file }),
    ]
}

#[derive(Default)]
struct Run {
    index: StreamIndex,
    books: Books,
    live: BTreeMap<StreamId, BTreeSet<u64>>,
    /// Erased, and with bytes in the file of their row.
    erased: BTreeSet<(StreamId, u64)>,
    /// Erased in the copy of their row.
    emptied: BTreeSet<(StreamId, u64)>,
    next: BTreeMap<StreamId, u64>,
    files: u32,
    /// Bytes used of the newest file.
    end: u32,
}

impl Run {
    fn place(&mut self, stream: StreamId, count: u32, same_frame: bool) {
        if !same_frame {
            self.files += 1;
            self.end = 0;
        }
        let next = self.next.entry(stream).or_insert(1);
        let row = Row {
            first: *next,
            count,
            live: count,
            file: FileId(self.files),
            frame: 0,
            at: self.end,
            bytes: count * RECORD_BYTES,
        };
        self.end += row.bytes;
        let body: Vec<u8> = [6u8, 0, 0, 0, 1, 2, 3, 4, 5, 6].repeat((self.end / RECORD_BYTES) as usize);
        let rows = split(&row, &body, ROW_BYTES).unwrap();
        self.live.entry(stream).or_default().extend(row.first..row.end());
        *next = row.end();
        self.index.push(stream, rows, ROW_BYTES, &mut self.books);
    }

    fn free(&mut self, stream: StreamId, from: &prop::sample::Index, count: u64) {
        let Some(live) = self.live.get_mut(&stream).filter(|live| !live.is_empty()) else {
            return;
        };
        let first = *live.iter().nth(from.index(live.len())).unwrap();
        let count = (first..first + count).take_while(|seq| live.remove(seq)).count() as u64;
        assert_eq!(self.index.free(stream, Seq(first), count, &mut self.books), Ok(()));
    }

    fn erase(&mut self, stream: StreamId, at: &prop::sample::Index) {
        let Some(live) = self.live.get_mut(&stream).filter(|live| !live.is_empty()) else {
            return;
        };
        let seq = *live.iter().nth(at.index(live.len())).unwrap();
        live.remove(&seq);
        let key = self.index.find(stream, Seq(seq)).unwrap().key();
        assert_eq!(self.index.erase(stream, Seq(seq), &mut self.books), Ok(key));
        self.erased.insert((stream, seq));
    }

    fn move_file(&mut self, file: &prop::sample::Index) {
        if self.files == 0 {
            return;
        }
        let victim = FileId(1 + u32::try_from(file.index(self.files as usize)).unwrap());
        self.files += 1;
        self.end = 0;
        let (page, more) = self.index.page(None, usize::MAX);
        assert!(!more);
        let mut moved: BTreeMap<StreamId, Vec<Moved>> = BTreeMap::new();
        let (mut copied, copy) = (Vec::new(), FileId(self.files));
        for (stream, row) in page.into_iter().filter(|(_, row)| row.file == victim) {
            let erased = self.index.erasures.marked(stream, row.first, row.end());
            let emptied = u32::try_from(erased.len()).unwrap();
            let to = Row {
                file: FileId(self.files),
                frame: 0,
                at: self.end,
                bytes: row.bytes - emptied * (RECORD_BYTES - 4),
                ..row
            };
            self.end += to.bytes;
            copied.extend(erased.into_iter().map(|seq| (stream, seq)));
            moved.entry(stream).or_default().push((row.key(), row.at, to));
        }
        // A frame of its own comes next.
        self.files += 1;
        self.end = 0;
        for (stream, moved) in moved {
            self.index.replace(stream, &moved, ROW_BYTES, &mut self.books);
        }
        for (stream, seq) in copied {
            self.index.unmark_in(stream, seq, copy);
            assert!(self.erased.remove(&(stream, seq)));
            self.emptied.insert((stream, seq));
        }
        assert_eq!(
            self.books.0.get(&victim.0).copied().unwrap_or_default(),
            (0, 0),
            "{victim:?} is not needed any more"
        );
    }

    fn check(&self) {
        let mut rows = Vec::new();
        let mut after = None;
        loop {
            let (page, more) = self.index.page(after, 3);
            after = page.last().map(|(stream, row)| (*stream, row.end()));
            rows.extend(page);
            if !more {
                break;
            }
        }
        let mut books = Books::default();
        for (of, row) in &rows {
            books.added(row, true, row.bytes);
            let emptied = self.emptied.range((*of, row.first)..(*of, row.end())).count();
            let without = u32::try_from(emptied).unwrap() * (RECORD_BYTES - 4);
            assert!(row.bytes <= ROW_BYTES && row.bytes == row.count * RECORD_BYTES - without);
        }
        let held = |books: &Books| {
            books
                .0
                .clone()
                .into_iter()
                .filter(|(_, held)| *held != (0, 0))
                .collect::<Vec<_>>()
        };
        assert_eq!(held(&books), held(&self.books));
        assert_eq!(self.index.len(), rows.len());
        let placed = |(stream, seq): &(StreamId, u64)| self.index.find(*stream, Seq(*seq)).is_some();
        let marked: Vec<_> = self.erased.iter().copied().filter(placed).collect();
        assert!(
            self.index.erasures.marks().eq(marked),
            "erased records whose row is there"
        );
        for (stream, live) in &self.live {
            let in_rows: u64 = rows
                .iter()
                .filter(|(of, _)| of == stream)
                .map(|(_, row)| u64::from(row.live))
                .sum();
            assert_eq!(in_rows, live.len() as u64, "live records of {stream}");
            for seq in live {
                let row = self.index.find(*stream, Seq(*seq)).unwrap();
                assert!(row.holds(Seq(*seq)) && row.live > 0);
            }
        }
    }
}

proptest! {
    #[test]
    fn every_live_record_is_found_and_every_byte_is_booked_and_every_erased_record_is_known(steps in prop::collection::vec(step(), 1..120)) {
        let mut run = Run::default();
        for step in steps {
            match step {
                Step::Place { stream, count, same_frame } => run.place(StreamId(stream), count, same_frame),
                Step::Free { stream, from, count } => run.free(StreamId(stream), &from, count),
                Step::Erase { stream, at } => run.erase(StreamId(stream), &at),
                Step::Move { file } => run.move_file(&file),
            }
            run.check();
        }
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused_without_panic(
        body: Vec<u8>, at in 0u32..100, count in 1u32..50, bytes in 0u32..300,
    ) {
        let row = Row { first: 1, count, live: count, file: FileId(1), frame: 0, at, bytes };
        if let Ok(rows) = split(&row, &body, ROW_BYTES) {
            prop_assert_eq!(rows.iter().map(|row| row.count).sum::<u32>(), count);
            prop_assert_eq!(rows.iter().map(|row| row.bytes).sum::<u32>(), bytes);
        }
    }
}

#[test]
fn freeing_what_is_not_there_is_an_error() {
    let mut run = Run::default();
    run.place(StreamId(1), 10, false);
    let mut free = |first, count| run.index.free(StreamId(1), Seq(first), count, &mut run.books);
    assert_eq!(free(3, 2), Ok(()));
    assert_eq!(free(9, 3), Err(NotPlaced), "beyond the end");
    assert_eq!(free(1, u64::MAX), Err(NotPlaced));
    assert_eq!(free(0, 1), Err(NotPlaced));
    assert_eq!(run.index.free(StreamId(2), Seq(1), 1, &mut run.books), Err(NotPlaced));
}

#[test]
fn records_of_one_frame_share_rows_and_those_of_others_do_not() {
    let mut run = Run::default();
    run.place(StreamId(1), 2, false);
    run.place(StreamId(1), 3, true);
    assert_eq!(run.index.len(), 1, "five records are one row");
    run.place(StreamId(1), 1, true);
    assert_eq!(run.index.len(), 2, "the first row is full");
    run.place(StreamId(1), 1, false);
    assert_eq!(run.index.len(), 3, "another frame");
    assert_eq!(
        run.index.find(StreamId(1), Seq(7)).unwrap().key(),
        FrameKey {
            file: FileId(2),
            offset: 0
        }
    );
}

#[test]
fn a_long_stream_is_freed_from_the_middle_without_going_through_it() {
    let mut run = Run::default();
    for _ in 0..20_000 {
        run.place(StreamId(1), 5, false);
    }
    let start = std::time::Instant::now();
    for n in 0..9_000 {
        let first = 25_000 + n * 5 + 1;
        run.index.free(StreamId(1), Seq(first), 5, &mut run.books).unwrap();
    }
    assert!(start.elapsed().as_millis() < 500, "{:?}", start.elapsed());
    assert_eq!(run.index.len(), 11_000);
}

#[test]
fn a_record_is_erased_once() {
    let mut run = Run::default();
    run.place(StreamId(1), 3, false);
    let mut erase = |seq| run.index.erase(StreamId(1), Seq(seq), &mut run.books).is_ok();
    assert_eq!([2, 2, 4].map(&mut erase), [true, false, false]);
}

#[test]
fn records_are_left_out_in_place() {
    let records = [
        &[2u8, 0, 0, 0, 1, 2][..],
        &[1, 0, 0, 0, 3],
        &[0, 0, 0, 0],
        &[1, 0, 0, 0, 4],
    ]
    .concat();
    let left = without(&records, 5, &[6, 8]).unwrap();
    assert_eq!(left, [2, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(without(&records[..12], 5, &[]).is_err(), "cut off");
}
