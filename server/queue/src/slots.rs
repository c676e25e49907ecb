//! What there is by number, of which some is gone for good.
//!
//! Numbers are given in order and never again, so that whoever kept one finds nothing, and not something else. What is gone
//! takes no memory.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: BTreeMap<usize, T>,
    next: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T> Slots<T> {
    /// How many numbers were given.
    pub(crate) fn len(&self) -> usize {
        self.next
    }

    /// Gives the next number to `value`.
    pub(crate) fn push(&mut self, value: T) {
        self.slots.insert(self.next, value);
        self.next += 1;
    }

    /// Gives the next numbers to nothing.
    pub(crate) fn push_gone(&mut self, count: usize) {
        self.next = self.next.saturating_add(count);
    }

    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        self.slots.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.slots.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: usize) -> Option<T> {
        self.slots.remove(&number)
    }

    /// What is there, in the order of the numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.values()
    }

    /// As [`Slots::iter`], with the numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &T)> {
        self.slots.iter().map(|(number, value)| (*number, value))
    }

    /// How many numbers were given to what is gone.
    pub(crate) fn gone_count(&self) -> usize {
        self.next - self.slots.len()
    }

    /// Gives the same numbers as `others` has given, to something new for each that is still there.
    pub(crate) fn follow<U>(&mut self, others: &Slots<U>, mut new: impl FnMut() -> T) {
        if self.next < others.next {
            let missing = others.slots.range(self.next..);
            self.slots.extend(missing.map(|(number, _)| (*number, new())));
            self.next = others.next;
        }
    }
}

/// As for a slice: the number has to be one of something that is there.
impl<T> Index<usize> for Slots<T> {
    type Output = T;

    #[allow(clippy::expect_used, reason = "the contract of indexing")]
    fn index(&self, number: usize) -> &T {
        self.get(number).expect("a number of something that is there")
    }
}

impl<T> IndexMut<usize> for Slots<T> {
    #[allow(clippy::expect_used, reason = "the contract of indexing")]
    fn index_mut(&mut self, number: usize) -> &mut T {
        self.get_mut(number).expect("a number of something that is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_never_given_again() {
        let mut slots = Slots::default();
        for value in ["a", "b", "c"] {
            slots.push(value);
        }
        assert_eq!(slots.remove(1), Some("b"));
        assert_eq!(slots.remove(2), Some("c"));
        assert_eq!((slots.remove(2), slots.get(1), slots.get(9)), (None, None, None));
        slots.push("d");
        assert_eq!(slots.numbered().collect::<Vec<_>>(), [(0, &"a"), (3, &"d")]);
        assert_eq!((slots.len(), slots.gone_count(), slots[3]), (4, 2, "d"));
        slots.push_gone(usize::MAX / 2);
        let mut same = Slots::default();
        same.push(7);
        same.follow(&slots, || 9);
        assert_eq!(same.numbered().collect::<Vec<_>>(), [(0, &7), (3, &9)]);
        assert_eq!(same.len(), slots.len());
    }
}
