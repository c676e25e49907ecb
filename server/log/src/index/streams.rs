//! Streams in order, for a million of them.
//!
//! Sorted chunks of up to 128: new streams mostly have the highest number, and a chunk that overflows at the end stays full, where the
//! leaves of a `BTreeMap` would stay half empty. Finding is a binary search for the chunk and one in it.

use boltq_core::StreamId;

use super::StreamRows;

/// Streams of a chunk; with them it takes a size that allocators have.
const CHUNK_STREAMS: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Streams {
    chunks: Vec<Chunk>,
}

#[derive(Debug)]
struct Chunk {
    /// Not above the first stream in it, and above all in the chunk before.
    from: StreamId,
    /// Never empty.
    streams: Vec<(StreamId, StreamRows)>,
}

impl Chunk {
    fn one(stream: StreamId, rows: StreamRows) -> Self {
        Self {
            from: stream,
            streams: vec![(stream, rows)],
        }
    }

    fn position(&self, stream: StreamId) -> Result<usize, usize> {
        self.streams.binary_search_by_key(&stream, |(id, _)| *id)
    }
}

impl Streams {
    pub(super) fn iter(&self) -> impl Iterator<Item = (StreamId, &StreamRows)> {
        self.iter_from(StreamId(0))
    }

    /// From `stream` on, whether it is there or not.
    pub(super) fn iter_from(&self, stream: StreamId) -> impl Iterator<Item = (StreamId, &StreamRows)> {
        let at = self.chunk(stream);
        let skip = self.chunks.get(at).map_or(0, |chunk| match chunk.position(stream) {
            Ok(position) | Err(position) => position,
        });
        let streams = self.chunks[at..].iter().flat_map(|chunk| &chunk.streams).skip(skip);
        streams.map(|(id, rows)| (*id, rows))
    }

    /// The chunk that `stream` is in, or would be.
    fn chunk(&self, stream: StreamId) -> usize {
        let after = self.chunks.partition_point(|chunk| chunk.from <= stream);
        after.saturating_sub(1)
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<&StreamRows> {
        let chunk = self.chunks.get(self.chunk(stream))?;
        chunk.position(stream).ok().map(|at| &chunk.streams[at].1)
    }

    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut StreamRows> {
        let at = self.chunk(stream);
        let chunk = self.chunks.get_mut(at)?;
        chunk.position(stream).ok().map(|at| &mut chunk.streams[at].1)
    }

    pub(super) fn last(&self) -> Option<StreamId> {
        let last = self.chunks.last()?.streams.last()?;
        Some(last.0)
    }

    /// Puts a stream; what it was before goes.
    pub(super) fn insert(&mut self, stream: StreamId, rows: StreamRows) {
        let at = self.chunk(stream);
        let is_last = at + 1 >= self.chunks.len();
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Chunk::one(stream, rows));
            return;
        };
        match chunk.position(stream) {
            Ok(position) => chunk.streams[position].1 = rows,
            Err(position) if chunk.streams.len() < CHUNK_STREAMS => {
                chunk.from = chunk.from.min(stream);
                chunk.streams.insert(position, (stream, rows));
            }
            Err(position) if is_last && position == CHUNK_STREAMS => self.chunks.push(Chunk::one(stream, rows)),
            Err(_) => {
                let upper = chunk.streams.split_off(CHUNK_STREAMS / 2);
                let from = upper[0].0;
                self.chunks.insert(at + 1, Chunk { from, streams: upper });
                self.insert(stream, rows);
            }
        }
    }

    pub(super) fn remove(&mut self, stream: StreamId) {
        let at = self.chunk(stream);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let Ok(position) = chunk.position(stream) else { return };
        chunk.streams.remove(position);
        let left = chunk.streams.len();
        if left == 0 {
            self.chunks.remove(at);
        } else if left < CHUNK_STREAMS / 4 {
            self.merge(at);
        }
    }

    /// Joins a chunk of few streams with one beside it that has room.
    fn merge(&mut self, at: usize) {
        let fits = |pair: &[Chunk]| pair[0].streams.len() + pair[1].streams.len() <= CHUNK_STREAMS / 2;
        let before = at.checked_sub(1);
        let lower = before.into_iter().chain([at]);
        let Some(lower) = lower
            .into_iter()
            .find(|lower| self.chunks.get(*lower..lower + 2).is_some_and(fits))
        else {
            return;
        };
        let upper = self.chunks.remove(lower + 1);
        self.chunks[lower].streams.extend(upper.streams);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::index::Row;
    use crate::types::FileId;

    fn rows(first: u64) -> StreamRows {
        StreamRows::One(Row {
            first,
            count: 1,
            live: 1,
            file: FileId(1),
            frame: 0,
            at: 0,
            bytes: 4,
        })
    }

    fn content(streams: &Streams, from: u64) -> Vec<(u64, u64)> {
        let of = |rows: &StreamRows| rows.iter().map(|row| row.first).sum();
        let streams = streams.iter_from(StreamId(from));
        streams.map(|(id, rows)| (id.0, of(rows))).collect()
    }

    proptest! {
        /// Runs of neighbours, so that chunks overflow, are split and are joined.
        #[test]
        fn streams_come_and_go_as_in_a_map(steps in prop::collection::vec((any::<bool>(), 0u64..900, 1u64..300), 1..40)) {
            let (mut streams, mut model) = (Streams::default(), BTreeMap::new());
            for (insert, from, count) in steps {
                for id in from..from + count {
                    if insert {
                        streams.insert(StreamId(id), rows(id + count));
                        model.insert(id, id + count);
                    } else {
                        streams.remove(StreamId(id));
                        model.remove(&id);
                    }
                }
                let wanted: Vec<(u64, u64)> = model.range(from..).map(|(id, first)| (*id, *first)).collect();
                prop_assert_eq!(content(&streams, from), wanted);
                prop_assert_eq!(streams.iter().count(), model.len());
                prop_assert_eq!(streams.last().map(|id| id.0), model.keys().next_back().copied());
                for id in [from.saturating_sub(1), from, from + count / 2, from + count] {
                    let found = streams.get(StreamId(id)).map(|rows| rows.iter().map(|row| row.first).sum());
                    prop_assert_eq!(found, model.get(&id).copied());
                }
                prop_assert!(streams.chunks.iter().all(|chunk| (1..=CHUNK_STREAMS).contains(&chunk.streams.len())));
            }
        }
    }
}
