//! What comes at one end and goes at the other, and can be looked at anywhere.
//!
//! In pieces of a fixed length: what grows by being copied takes twice its memory while it does, and stands still meanwhile.

use std::collections::VecDeque;

/// Values that are allocated together.
const CHUNK: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Fifo<T> {
    /// All but the last are full.
    chunks: VecDeque<Vec<T>>,
    /// Values of the first chunk that are gone.
    gone: usize,
    len: usize,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self {
            chunks: VecDeque::new(),
            gone: 0,
            len: 0,
        }
    }
}

impl<T: Copy> Fifo<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let at = index.checked_add(self.gone)?;
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().skip(self.gone)
    }

    pub(crate) fn push_back(&mut self, value: T) {
        match self.chunks.back_mut() {
            Some(last) if last.len() < CHUNK => last.push(value),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(value);
                self.chunks.push_back(chunk);
            }
        }
        self.len += 1;
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let first = self.front().copied()?;
        self.len -= 1;
        self.gone += 1;
        if self.gone == CHUNK || self.len == 0 {
            self.chunks.pop_front();
            self.gone = 0;
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_what_a_plain_queue_does() {
        let (mut fifo, mut plain) = (Fifo::default(), VecDeque::new());
        for round in 0..40_usize {
            for value in 0..round * 37 % 3_001 {
                fifo.push_back(value);
                plain.push_back(value);
            }
            for _ in 0..round * 91 % 2_503 {
                assert_eq!(fifo.pop_front(), plain.pop_front());
            }
            assert!(fifo.iter().eq(&plain) && fifo.len() == plain.len());
            for index in [0, 1, plain.len() / 2, plain.len(), usize::MAX] {
                assert_eq!(fifo.get(index), plain.get(index));
            }
            assert_eq!(fifo.front(), plain.front());
        }
    }
}
