//! How many bytes the records of a queue have that may hold so many only.
//!
//! A window knows no sizes, and a size for each message would cost as much as a limit saves. So there is a mark for each
//! batch: up to which sequence so many bytes were appended. Thinned out, when there are many, to every second one. What is
//! done behind the first message that is not counts by its share. So it is exact for a queue whose messages are done in
//! order and that has few batches, and close for others. Messages that were there before the queue had a limit are not
//! counted.
//!
//! Always true: of a stream there are no marks, or at least two; they rise in sequence, and do not fall in bytes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use boltq_core::DecodeError;
use boltq_core::codec::{self, Reader};
use bytes::{BufMut, BytesMut};

use crate::snapshot::{COUNT_MAX, check, read_total};
use crate::window::Window;

/// Marks of a stream.
const MARKS_MAX: usize = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// The sequence behind the last one that is counted.
    end: u64,
    /// Bytes up to there.
    total: u64,
}

/// By stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes(BTreeMap<usize, VecDeque<Mark>>);

impl Sizes {
    /// Counts records that were just appended.
    pub(crate) fn append(&mut self, lane: usize, window: &Window, range: &Range<u64>, bytes: u64) {
        let marks = self.0.entry(lane).or_default();
        while marks.get(1).is_some_and(|second| second.end <= window.base) {
            marks.pop_front();
        }
        // All that was counted is done.
        if marks.back().is_some_and(|last| last.end <= window.base) {
            marks.clear();
        }
        if marks.is_empty() {
            marks.push_back(Mark {
                end: range.start,
                total: 0,
            });
        }
        let before = marks.back().map_or(0, |last| last.total);
        marks.push_back(Mark {
            end: range.end,
            total: before.saturating_add(bytes).min(COUNT_MAX),
        });
        if marks.len() > MARKS_MAX {
            let last = marks.len() - 1;
            let mut position = 0..;
            marks.retain(|_| {
                position
                    .next()
                    .is_none_or(|position| position % 2 == 0 || position == last)
            });
        }
    }

    /// Bytes of what is not done in a stream.
    pub(crate) fn open_bytes(&self, lane: usize, window: &Window) -> u64 {
        let Some(marks) = self.0.get(&lane) else { return 0 };
        let last = marks.back().map_or(0, |last| last.total);
        let span = last.saturating_sub(bytes_before(marks, window.base));
        let known = window.head - window.base;
        if known == 0 {
            return 0;
        }
        let open = u128::from(span) * u128::from(window.open_count()) / u128::from(known);
        u64::try_from(open).unwrap_or(u64::MAX)
    }

    pub(crate) fn put(&self, out: &mut BytesMut) {
        codec::put_len(out, self.0.len());
        for (lane, marks) in &self.0 {
            codec::put_len(out, *lane);
            codec::put_len(out, marks.len());
            for mark in marks {
                out.put_u64_le(mark.end);
                out.put_u64_le(mark.total);
            }
        }
    }

    /// Reads the marks of streams with these windows.
    pub(crate) fn read<'w>(
        reader: &mut Reader<'_>,
        window: impl Fn(usize) -> Option<&'w Window>,
    ) -> Result<Self, DecodeError> {
        const WHAT: &str = "sizes of a queue";
        let mut sizes = Self::default();
        let mut before = None;
        for _ in 0..reader.count(40, WHAT)? {
            let lane = reader.u32(WHAT)? as usize;
            check(before < Some(lane), WHAT, "they are not in order")?;
            before = Some(lane);
            let head = window(lane).map_or(0, |window| window.head);
            let count = reader.count(16, WHAT)?;
            check((2..=MARKS_MAX).contains(&count), WHAT, "there are too few, or too many")?;
            let mut marks = VecDeque::<Mark>::with_capacity(count);
            for _ in 0..count {
                let mark = Mark {
                    end: reader.u64(WHAT)?,
                    total: read_total(reader)?,
                };
                let rises = marks
                    .back()
                    .is_none_or(|last| last.end < mark.end && last.total <= mark.total);
                check(
                    rises && 0 < mark.end && mark.end <= head,
                    WHAT,
                    "they do not rise to the head",
                )?;
                marks.push_back(mark);
            }
            sizes.0.insert(lane, marks);
        }
        Ok(sizes)
    }
}

/// Bytes that were counted before `seq`; between two marks by its share.
fn bytes_before(marks: &VecDeque<Mark>, seq: u64) -> u64 {
    let behind = marks.partition_point(|mark| mark.end <= seq);
    let Some(before) = behind.checked_sub(1).and_then(|before| marks.get(before)) else {
        return marks.front().map_or(0, |first| first.total);
    };
    let Some(after) = marks.get(behind) else {
        return before.total;
    };
    let (bytes, messages) = (after.total - before.total, after.end - before.end);
    let share = u128::from(bytes) * u128::from(seq - before.end) / u128::from(messages);
    before.total + u64::try_from(share).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(sizes: &mut Sizes, window: &mut Window, count: u64, bytes: u64) {
        let range = window.append(count);
        sizes.append(0, window, &range, bytes);
    }

    #[test]
    fn batches_that_are_done_in_order_are_counted_exactly() {
        let (mut sizes, mut window) = (Sizes::default(), Window::default());
        // These were there before.
        window.append(5);
        for bytes in [100, 200, 300] {
            appended(&mut sizes, &mut window, 2, bytes);
        }
        assert_eq!(sizes.open_bytes(1, &window), 0);
        window.finish(&(1..6), |_| {});
        assert_eq!(sizes.open_bytes(0, &window), 600);
        window.finish(&(6..8), |_| {});
        assert_eq!(sizes.open_bytes(0, &window), 500);
        window.finish(&(8..9), |_| {});
        assert_eq!(sizes.open_bytes(0, &window), 400);
        window.finish(&(9..12), |_| {});
        assert_eq!(sizes.open_bytes(0, &window), 0);
        appended(&mut sizes, &mut window, 1, 7);
        assert_eq!((sizes.open_bytes(0, &window), sizes.0[&0].len()), (7, 2));
    }

    #[test]
    fn what_is_done_behind_a_message_that_is_not_counts_by_its_share() {
        let (mut sizes, mut window) = (Sizes::default(), Window::default());
        for _ in 0..10 {
            appended(&mut sizes, &mut window, 10, 1_000);
        }
        window.finish(&(2..100), |_| {});
        assert_eq!(sizes.open_bytes(0, &window), 200);
    }

    #[test]
    fn marks_are_few_however_many_batches_there_are() {
        let (mut sizes, mut window) = (Sizes::default(), Window::default());
        let mut expected = 0;
        for batch in 0..10_000u64 {
            appended(&mut sizes, &mut window, 1, 100 + batch % 7);
            expected += 100 + batch % 7;
        }
        assert!(sizes.0[&0].len() <= MARKS_MAX);
        assert_eq!(sizes.open_bytes(0, &window), expected);
        window.finish(&(1..5_001), |_| {});
        let left = sizes.open_bytes(0, &window);
        assert!(left.abs_diff(expected / 2) < 2_000, "{left} of {expected}");
        let mut out = BytesMut::new();
        sizes.put(&mut out);
        let read = |bytes: &[u8]| Sizes::read(&mut Reader::new(bytes), |lane| (lane == 0).then_some(&window));
        assert_eq!(read(&out).unwrap(), sizes);
        for end in [0, 4, 11, out.len() - 1] {
            assert!(read(&out[..end]).is_err(), "{end}");
        }
        // Another stream, which was never published to.
        out[4] = 1;
        assert!(read(&out).is_err());
    }
}
