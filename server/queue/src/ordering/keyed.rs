//! What can be leased from the stream of messages with an ordering key.
//!
//! A cursor goes over the stream and looks at each message once. The first of a key that it comes to holds the key. Another
//! one waits, and gets the key when all in front of it are done. Each is then ready, or rests until the end of its backoff.
//!
//! Always true, for a leader, of messages that are not done:
//! - those in front of the cursor are in `keys`; of each key the oldest is in `holders`, and the others are in `waiting`;
//! - a holder is in exactly one of these: `ready`, `backoff`, `claimed`, `purging`, or leased;
//! - nothing else is ready, rests or is leased; but a command may be on its way for any message, as for a purge or because
//!   it is over.
//!
//! The cursor stands still in two cases, and then somebody is woken when that is over. One is that so many wait that looking
//! further would take too much memory. Which message it stops at follows from what is not done, so a new leader
//! finds the same ones. The other is a purge that is on its way: if it fails, what it had taken is there again, in
//! front of everything that was published since.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use boltq_core::{KeyHash, Millis, Seq};

use super::Keys;
use crate::lane::Holds;
use crate::ranges::RangeSet;
use crate::window::Window;

/// Messages of a queue that may wait for their key in front of the cursor. Tests come upon the limit with few.
pub(crate) const WAITING_MAX: usize = if cfg!(test) { 6 } else { 100_000 };
/// Messages that become ready together at most because somebody settles one that was not looked at.
const READY_MAX: u64 = 100_000;

/// Messages that one call to lease, or to settle, looks at: some tenths of a millisecond. Others have their turn then, before it goes on.
pub(crate) const LOOKS_MAX: usize = 1_000;

/// Messages of the same priority that have a key, and those that have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Keyed,
    Lane,
}

/// The stream as the machine has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream<'a> {
    pub(crate) window: &'a Window,
    pub(crate) keys: &'a Keys,
}

/// What came of looking at the next message.
enum Looked {
    /// It holds its key, and nobody has it.
    Holder(u64),
    /// It has to wait for its key, or for a command.
    Waiter,
    /// There is nothing more, or not now.
    Nothing,
}

/// What is there to lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Message(u64),
    Nothing,
    /// So many were looked at that others have their turn first.
    Later,
}

#[derive(Debug)]
pub(crate) struct Keyed {
    /// Everything from here on was not looked at.
    cursor: u64,
    /// The key of each message in front of the cursor.
    keys: BTreeMap<u64, KeyHash>,
    holders: BTreeMap<KeyHash, u64>,
    waiting: BTreeSet<(KeyHash, u64)>,
    ready: RangeSet,
    pub(crate) holds: Holds,
    /// The cursor stands still, though there is more.
    stopped: bool,
    /// Whether the messages without a key come first the next time.
    lane_first: bool,
}

impl Default for Keyed {
    fn default() -> Self {
        Self {
            cursor: Seq::FIRST.0,
            keys: BTreeMap::new(),
            holders: BTreeMap::new(),
            waiting: BTreeSet::new(),
            ready: RangeSet::default(),
            holds: Holds::default(),
            stopped: false,
            lane_first: false,
        }
    }
}

impl Keyed {
    /// Where a leader begins: nothing was looked at.
    pub(crate) fn new(window: &Window) -> Self {
        Self {
            cursor: window.base,
            ..Self::default()
        }
    }

    /// Of `left` messages, how many come from where: both have their share, whatever waits for the other, and what one
    /// lacks the other may have. Who begins changes with each call of [`Keyed::change_turns`].
    pub(crate) fn turns(&self, left: usize) -> [(Source, usize); 3] {
        let (first, second) = match self.lane_first {
            true => (Source::Lane, Source::Keyed),
            false => (Source::Keyed, Source::Lane),
        };
        [(first, left.div_ceil(2)), (second, left), (first, left)]
    }

    pub(crate) fn change_turns(&mut self) {
        self.lane_first = !self.lane_first;
    }

    /// Appends the next of both sources, at most `max`, as they would be leased.
    pub(crate) fn show<T>(
        &self,
        max: usize,
        mut keyed: impl Iterator<Item = T>,
        mut lane: impl Iterator<Item = T>,
        out: &mut Vec<T>,
    ) {
        let wanted = out.len() + max;
        for (source, most) in self.turns(max) {
            let most = most.min(wanted - out.len());
            match source {
                Source::Keyed => out.extend(keyed.by_ref().take(most)),
                Source::Lane => out.extend(lane.by_ref().take(most)),
            }
        }
    }

    /// Looks at the next message.
    fn look(&mut self, stream: Stream<'_>) -> Looked {
        let Some(next) = stream.window.open_parts(self.cursor..u64::MAX).next() else {
            self.cursor = stream.window.head;
            return Looked::Nothing;
        };
        let seq = next.start;
        let key = stream.keys.get(seq);
        let is_held = self.holders.contains_key(&key);
        if self.holds.purging.count() > 0 || (is_held && self.waiting.len() >= WAITING_MAX) {
            self.stopped = true;
            return Looked::Nothing;
        }
        self.cursor = seq + 1;
        self.keys.insert(seq, key);
        if is_held {
            self.waiting.insert((key, seq));
            return Looked::Waiter;
        }
        self.holders.insert(key, seq);
        if self.holds.claimed.contains(seq) {
            return Looked::Waiter;
        }
        Looked::Holder(seq)
    }

    /// Takes the next message that can be leased. Each message that is looked at for that takes one of `looks`. Tells `rest` of
    /// those that it comes upon and that rest until then.
    pub(crate) fn take_first(
        &mut self,
        stream: Stream<'_>,
        now: Millis,
        looks: &mut usize,
        mut rest: impl FnMut(u64, Millis),
    ) -> Next {
        if let Some(range) = self.ready.take_first(1) {
            return Next::Message(range.start);
        }
        while let Some(left) = looks.checked_sub(1) {
            *looks = left;
            match self.look(stream) {
                Looked::Holder(seq) => match stream.window.rests(seq, now) {
                    None => return Next::Message(seq),
                    Some(until) => {
                        self.holds.backoff.insert(seq..seq + 1);
                        rest(seq, until);
                    }
                },
                Looked::Waiter => {}
                Looked::Nothing => return Next::Nothing,
            }
        }
        Next::Later
    }

    /// Looks at messages until that one was looked at, as far as it goes. For what an earlier leader may have handed out. False: it
    /// has looked at [`LOOKS_MAX`], and could go further.
    pub(crate) fn reach(
        &mut self,
        stream: Stream<'_>,
        seq: u64,
        now: Millis,
        mut rest: impl FnMut(u64, Millis),
    ) -> bool {
        for _ in 0..LOOKS_MAX {
            if self.is_far_enough(seq) {
                return true;
            }
            match self.look(stream) {
                Looked::Holder(seq) => {
                    if let Some(until) = self.settle_down(stream.window, seq, now) {
                        rest(seq, until);
                    }
                }
                Looked::Waiter => {}
                Looked::Nothing => return true,
            }
        }
        self.is_far_enough(seq)
    }

    /// Whether a message was looked at, or too many are ready to look for it.
    fn is_far_enough(&self, seq: u64) -> bool {
        self.cursor > seq || self.ready.count() >= READY_MAX
    }

    /// Makes a holder that nobody has ready, or lets it rest until the time that is returned.
    fn settle_down(&mut self, window: &Window, seq: u64, now: Millis) -> Option<Millis> {
        let until = window.rests(seq, now);
        match until {
            None => self.ready.insert(seq..seq + 1),
            Some(_) => self.holds.backoff.insert(seq..seq + 1),
        }
        until
    }

    /// Takes a message out of what can be leased; false if it was not there.
    pub(crate) fn take(&mut self, seq: u64) -> bool {
        self.ready.remove(&(seq..seq + 1)) > 0
    }

    /// Whether a message that is not done waits for its key or was not looked at, and no command has it. A command that
    /// takes it leaves it where it is: it gets no key before that is over.
    pub(crate) fn is_behind(&self, seq: u64) -> bool {
        let key = self.keys.get(&seq);
        let holds_key = key.is_some_and(|key| self.holders.get(key) == Some(&seq));
        !holds_key && !self.holds.settling(seq)
    }

    /// Takes messages out of what can be leased.
    pub(crate) fn detach(&mut self, range: &Range<u64>) {
        self.ready.remove(range);
    }

    /// Takes back messages that nobody has any more: those that hold their key can be leased, or rest until the time
    /// that `rest` is told. Returns whether there may be something to lease that was not there before.
    pub(crate) fn give_back(
        &mut self,
        window: &Window,
        range: &Range<u64>,
        now: Millis,
        mut rest: impl FnMut(u64, Millis),
    ) -> bool {
        let looked = self.keys.range(range.clone());
        let holders = looked.filter(|(seq, key)| self.holders.get(key) == Some(*seq));
        let holders: Vec<_> = holders.map(|(seq, _)| *seq).collect();
        let mut any = std::mem::take(&mut self.stopped);
        for seq in holders {
            match self.settle_down(window, seq, now) {
                Some(until) => rest(seq, until),
                None => any = true,
            }
        }
        any
    }

    /// Forgets messages that are done, and gives their keys to those that wait. As for [`Keyed::give_back`].
    pub(crate) fn finish(
        &mut self,
        window: &Window,
        range: &Range<u64>,
        now: Millis,
        mut rest: impl FnMut(u64, Millis),
    ) -> bool {
        let mut freed = Vec::new();
        while let Some((&seq, &key)) = self.keys.range(range.clone()).next() {
            self.keys.remove(&seq);
            match self.holders.entry(key) {
                Entry::Occupied(holder) if *holder.get() == seq => {
                    holder.remove();
                    freed.push(key);
                }
                _ => {
                    self.waiting.remove(&(key, seq));
                }
            }
        }
        let mut any = std::mem::take(&mut self.stopped);
        for key in freed {
            let Some(seq) = self.next_holder(key) else { continue };
            match self.settle_down(window, seq, now) {
                Some(until) => rest(seq, until),
                None => any = true,
            }
        }
        any
    }

    /// Gives a key to the first that waits for it; none if there is none, or a command has it.
    fn next_holder(&mut self, key: KeyHash) -> Option<u64> {
        let (_, seq) = *self.waiting.range((key, 0)..=(key, u64::MAX)).next()?;
        self.waiting.remove(&(key, seq));
        self.holders.insert(key, seq);
        (!self.holds.settling(seq)).then_some(seq)
    }

    /// Takes everything that nobody has and that does not rest: what is ready, what waits, and what was not looked at.
    pub(crate) fn take_all(&mut self, window: &Window) -> RangeSet {
        let mut all = RangeSet::default();
        window.open_parts(0..u64::MAX).for_each(|range| all.insert(range));
        for set in [&self.holds.claimed, &self.holds.purging, &self.holds.backoff] {
            for range in set.iter() {
                all.remove(&range);
            }
        }
        for &seq in self.holders.values().filter(|seq| !self.ready.contains(**seq)) {
            all.remove(&(seq..seq + 1));
        }
        self.ready = RangeSet::default();
        all
    }

    /// What can be leased, in order.
    pub(crate) fn upcoming(&self, stream: Stream<'_>, now: Millis) -> impl Iterator<Item = u64> {
        let mut at = match self.holds.purging.count() {
            0 => self.cursor,
            _ => u64::MAX,
        };
        let mut seen = BTreeSet::new();
        let mut waiting = self.waiting.len();
        let ahead = std::iter::from_fn(move || {
            loop {
                let seq = stream.window.open_parts(at..u64::MAX).next()?.start;
                let key = stream.keys.get(seq);
                at = seq + 1;
                if self.holders.contains_key(&key) || !seen.insert(key) {
                    waiting += 1;
                    if waiting > WAITING_MAX {
                        return None;
                    }
                } else if stream.window.rests(seq, now).is_none() && !self.holds.claimed.contains(seq) {
                    return Some(seq);
                }
            }
        });
        self.ready.iter().flatten().chain(ahead.fuse())
    }
}

#[cfg(test)]
impl Keyed {
    /// Messages that are not done and were looked at.
    pub(crate) fn looked_at(&self) -> usize {
        self.keys.len()
    }

    /// How often a message that is not done is in here, `holds` aside.
    pub(crate) fn count_of(&self, seq: u64, window: &Window) -> usize {
        let looked = self.keys.get(&seq);
        let idle = match looked {
            Some(key) => self.waiting.contains(&(*key, seq)),
            None => seq >= self.cursor && window.is_open(seq),
        };
        usize::from(self.ready.contains(seq)) + usize::from(idle && !self.holds.settling(seq))
    }

    /// Checks what the module promises.
    pub(crate) fn check(&self, stream: Stream<'_>) {
        let mut oldest = BTreeMap::new();
        let mut waiting = BTreeSet::new();
        for seq in stream.window.open_parts(0..self.cursor).flatten() {
            let key = stream.keys.get(seq);
            assert_eq!(self.keys.get(&seq), Some(&key));
            if *oldest.entry(key).or_insert(seq) != seq {
                waiting.insert((key, seq));
            }
        }
        assert_eq!((&self.holders, &self.waiting), (&oldest, &waiting));
        assert_eq!(self.keys.len(), oldest.len() + waiting.len());
        assert!(waiting.len() <= WAITING_MAX);
        for set in [&self.ready, &self.holds.backoff] {
            let held = |seq: u64| self.holders.get(&self.keys[&seq]) == Some(&seq);
            assert!(set.iter().flatten().all(held));
        }
    }
}
