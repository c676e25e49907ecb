//! Timetable and calendar against plain maps, with millions of random steps.

use std::collections::BTreeMap;
use std::ops::Range;

use boltq_core::codec::Reader;
use boltq_core::{Millis, StreamId};
use bytes::BytesMut;

use crate::calendar::Calendar;
use crate::timetable::{CHUNK, Timetable, chunk_of};
use crate::window::Window;

const STREAM: StreamId = StreamId(26);
const STEPS: u32 = 2_000_000;
/// Sequences are among so many, four chunks and a bit, of which the model forgets the first ones in time.
const SPREAD: u64 = 4 * CHUNK + 100;

/// A linear congruential generator; its upper bits are good enough here.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What is done to both, and the clock that both go by.
struct World {
    random: Random,
    table: Timetable<Millis>,
    calendar: Calendar,
    model: BTreeMap<u64, Millis>,
    /// A copy of the table, and what is in it.
    copy: (Timetable<Millis>, BTreeMap<u64, Millis>),
    first: u64,
    now: u64,
}

impl World {
    fn seq(&mut self) -> u64 {
        self.first + self.random.below(SPREAD)
    }

    fn insert(&mut self) {
        let (seq, ms) = (self.seq(), 1 + self.random.below(2_000));
        let at = Millis(self.now + ms);
        self.table.insert(seq, at);
        self.calendar.arm_all(STREAM, &self.table, seq..seq + 1);
        self.model.insert(seq, at);
    }

    fn remove(&mut self, range: Range<u64>) {
        self.table.remove(&range);
        self.calendar.forget_gone(STREAM, &self.table, &range);
        while let Some((&seq, _)) = self.model.range(range.clone()).next() {
            self.model.remove(&seq);
        }
    }

    /// Time passes, and what is due is taken out.
    fn pass(&mut self) {
        self.now += self.random.below(40);
        let now = Millis(self.now);
        let mut expected: Vec<_> = self
            .model
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(seq, at)| (*at, *seq))
            .collect();
        expected.sort_unstable();
        let mut rung = Vec::new();
        while let Some((from, (stream, chunk))) = self.calendar.take_first(now) {
            let times: Vec<_> = self.table.in_chunk(chunk).collect();
            assert!(
                times.iter().all(|(_, at)| *at >= from),
                "one was due before the calendar knew"
            );
            rung.extend(times.iter().filter(|(_, at)| *at <= now).map(|(seq, at)| (*at, *seq)));
            if let Some(next) = times.iter().map(|(_, at)| *at).filter(|at| *at > now).min() {
                self.calendar.arm((stream, chunk), next);
            }
        }
        rung.sort_unstable();
        rung.iter().for_each(|(_, seq)| self.remove(*seq..seq + 1));
        assert_eq!(rung, expected);
    }

    fn compare(&mut self) {
        self.table.check();
        self.calendar.check();
        assert_eq!(self.table.len(), self.model.len() as u64);
        assert_eq!(self.table.is_empty(), self.model.is_empty());
        let expected: Vec<_> = self.model.iter().map(|(seq, at)| (*seq, *at)).collect();
        assert_eq!(self.table.iter().collect::<Vec<_>>(), expected);
        let (start, length) = (self.seq(), self.random.below(2 * CHUNK));
        let range = start..start + length;
        let within: Vec<_> = self.model.range(range.clone()).map(|(seq, at)| (*seq, *at)).collect();
        assert_eq!(self.table.range(range.clone()).collect::<Vec<_>>(), within);
        let mut earliest: BTreeMap<u64, Millis> = BTreeMap::new();
        for (seq, at) in within {
            let first = earliest.entry(chunk_of(seq)).or_insert(at);
            *first = at.min(*first);
        }
        assert_eq!(self.table.earliest(range).collect::<BTreeMap<_, _>>(), earliest);
        self.write_and_read();
        self.compare_copy();
    }

    /// What was copied is what it was, whatever became of the table; and the other way round.
    fn compare_copy(&mut self) {
        let (copy, model) = &mut self.copy;
        copy.check();
        assert!(copy.iter().eq(model.iter().map(|(seq, at)| (*seq, *at))));
        let seq = self.first + self.random.below(SPREAD);
        copy.insert(seq, Millis(self.now));
        copy.remove(&(seq..seq + CHUNK));
        assert!(self.table.iter().eq(self.model.iter().map(|(seq, at)| (*seq, *at))));
        self.copy = (self.table.clone(), self.model.clone());
    }

    fn write_and_read(&self) {
        if self.table.is_empty() {
            return;
        }
        let mut out = BytesMut::new();
        self.table.write(&mut out);
        let mut window = Window::default();
        window.append(self.first + SPREAD);
        let read = Timetable::read(&window, &mut Reader::new(&out)).unwrap();
        assert_eq!(read, self.table);
    }
}

#[test]
fn a_timetable_and_its_calendar_do_what_a_plain_map_does() {
    let mut world = World {
        random: Random(0x2545_F491_4F6C_DD1D),
        table: Timetable::default(),
        calendar: Calendar::default(),
        model: BTreeMap::new(),
        copy: Default::default(),
        first: 1,
        now: 1_000,
    };
    for step in 0..STEPS {
        match world.random.below(5_000) {
            0 => world.compare(),
            1..=99 => world.pass(),
            // What is done mostly goes from the front.
            100..=149 => {
                let end = world.first + world.random.below(CHUNK / 4);
                world.remove(world.first..end);
                world.first = end;
            }
            150..=199 => {
                let (start, length) = (world.seq(), world.random.below(CHUNK));
                world.remove(start..start + length);
            }
            200..=1_499 => {
                let seq = world.seq();
                assert_eq!(world.table.get(seq), world.model.get(&seq).copied(), "{step}");
                world.remove(seq..seq + 1);
            }
            _ => world.insert(),
        }
    }
    world.remove(0..u64::MAX);
    assert_eq!(
        (world.table.len(), world.calendar.first(), world.calendar.check()),
        (0, None, 0)
    );
}

#[test]
fn what_stays_of_many_messages_takes_little() {
    let mut table = Timetable::default();
    (1..=100 * CHUNK).for_each(|seq| table.insert(seq, Millis(seq)));
    for chunk in 0..100 {
        table.remove(&(chunk * CHUNK + 1..(chunk + 1) * CHUNK));
    }
    // `check` knows how much room a chunk may have.
    table.check();
    assert_eq!(table.len(), 100);
    table.remove(&(0..200 * CHUNK));
    assert_eq!(table.chunk_numbers(0).count(), 0);
}

#[test]
fn a_copy_shares_all_chunks_and_a_change_takes_one_of_them() {
    let mut table = Timetable::default();
    (0..100 * CHUNK).for_each(|seq| table.insert(seq, Millis(seq)));
    let copy = table.clone();
    assert_eq!(table.shared_with(&copy), 100);
    table.insert(7, Millis(1));
    table.insert(8, Millis(1));
    assert_eq!(table.shared_with(&copy), 99);
    table.remove(&(3 * CHUNK + 7..3 * CHUNK + 9));
    assert_eq!(table.shared_with(&copy), 98);
    // Those that go are not copied, nor are those of which nothing goes.
    table.remove(&(4 * CHUNK..6 * CHUNK));
    table.remove(&(3 * CHUNK + 7..3 * CHUNK + 9));
    assert_eq!((table.chunk_numbers(0).count(), table.shared_with(&copy)), (98, 96));
    assert_eq!((copy.len(), copy.get(7)), (100 * CHUNK, Some(Millis(7))));
    copy.check();
}
