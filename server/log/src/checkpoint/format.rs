//! The file of a checkpoint: one frame, whose file id is the index of the last entry in it.
//!
//! ```text
//! u32 group, id of the last entry
//! u64 file, u32 offset: the first entry that was not purged
//! u64 file, u32 offset: the first entry after the last one in here; it has to be there at a start. From version 2 on,
//!     the log is on the device up to this place
//! u64 an id that no file had yet
//! u32 length, meta; u32 length, state
//! u32 number of files that rows point into; each: u64 id, u8 class (0 WAL, 1 segment)
//! u32 number of streams; each: u64 stream, u32 number of rows; each:
//!     u64 first sequence, u32 count, u32 not freed, u32 position of the file in the list of files,
//!     u32 offset of the frame, u32 offset of the first record in its body, u32 bytes
//! only with erasures (a kind of its own):
//! u32 number of erased records whose bytes still stand in the frame of their row; each: u64 stream, u64 sequence, rising
//! u32 number of erasures that are not on the device yet; each: u8 1 a record, 0 all that was before an installed state;
//!     [u64 stream, u64 sequence]; u64 last WAL file that has to go, u64 last segment that has to go if it holds the record
//! ```

use std::collections::BTreeMap;

use boltq_core::codec::{Reader, put_len};
use boltq_core::{DecodeError, GroupId, Seq, StreamId};
use bytes::{BufMut, Bytes, BytesMut};

use crate::frame::Mark;
use crate::index::{Erasure, Erasures, Row, StreamIndex};
use crate::store::Class;
use crate::types::{EntryId, FileId};
use crate::wal::payload::{put_id, read_file, read_id};

const ROW_BYTES: usize = 32;

/// Everything in a checkpoint but its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) group: GroupId,
    pub(crate) applied: EntryId,
    /// Where the first entry is that was not purged.
    pub(crate) keep: Mark,
    /// Where the first entry is that is not in the checkpoint.
    pub(crate) replay: Mark,
    pub(crate) next_file: u64,
    pub(crate) files: Vec<(FileId, Class)>,
}

/// Rows of a group, flat: streams with the number of their rows, and all rows.
#[derive(Debug, Default)]
pub(crate) struct FlatRows {
    pub(crate) streams: Vec<(StreamId, u32)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) erasures: Erasures,
}

impl FlatRows {
    pub(crate) fn new(index: &StreamIndex) -> Self {
        let mut flat = Self {
            erasures: index.erasures.clone(),
            ..Self::default()
        };
        flat.rows.reserve(index.len());
        for (stream, rows) in index.streams() {
            let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            flat.streams.push((stream, count));
            flat.rows.extend(rows.iter());
        }
        flat
    }

    /// Each row with its stream.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, Row)> {
        let streams = self.streams.iter();
        let streams = streams.flat_map(|(stream, count)| std::iter::repeat_n(*stream, *count as usize));
        streams.zip(self.rows.iter().copied())
    }

    /// The files that rows point into.
    pub(crate) fn files(&self) -> Vec<FileId> {
        let mut files: Vec<FileId> = Vec::new();
        for row in &self.rows {
            if files.last() != Some(&row.file) {
                files.push(row.file);
            }
        }
        files.sort_unstable();
        files.dedup();
        files
    }
}

/// Parts of the payload: what comes before meta and state, and what comes after.
pub(crate) fn encode_front(head: &Head) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u32_le(head.group.0);
    put_id(&mut out, head.applied);
    for mark in [head.keep, head.replay] {
        out.put_u64_le(mark.file);
        out.put_u32_le(mark.offset);
    }
    out.put_u64_le(head.next_file);
    out
}

/// The part of the payload that comes after meta and state.
pub(crate) fn encode_rows(head: &Head, flat: &FlatRows) -> BytesMut {
    let bytes = 8 + head.files.len() * 9 + flat.streams.len() * 12 + flat.rows.len() * ROW_BYTES;
    let mut out = BytesMut::with_capacity(bytes);
    put_len(&mut out, head.files.len());
    for (id, class) in &head.files {
        out.put_u64_le(u64::from(id.0));
        out.put_u8(u8::from(*class == Class::Segment));
    }
    let positions: BTreeMap<FileId, usize> = head.files.iter().enumerate().map(|(at, (id, _))| (*id, at)).collect();
    put_len(&mut out, flat.streams.len());
    let mut rows = flat.rows.iter();
    for (stream, count) in &flat.streams {
        out.put_u64_le(stream.0);
        out.put_u32_le(*count);
        for row in rows.by_ref().take(*count as usize) {
            out.put_u64_le(row.first);
            out.put_u32_le(row.count);
            out.put_u32_le(row.live);
            put_len(&mut out, positions.get(&row.file).copied().unwrap_or(usize::MAX));
            out.put_u32_le(row.frame);
            out.put_u32_le(row.at);
            out.put_u32_le(row.bytes);
        }
    }
    if !flat.erasures.is_empty() {
        put_erasures(&mut out, &flat.erasures);
    }
    out
}

fn put_erasures(out: &mut BytesMut, erasures: &Erasures) {
    put_len(out, erasures.marks().len());
    for (stream, seq) in erasures.marks() {
        out.put_u64_le(stream.0);
        out.put_u64_le(seq);
    }
    put_len(out, erasures.pending().len());
    for (_, erasure) in erasures.pending() {
        out.put_u8(u8::from(erasure.record.is_some()));
        if let Some((stream, seq)) = erasure.record {
            out.put_u64_le(stream.0);
            out.put_u64_le(seq);
        }
        out.put_u64_le(u64::from(erasure.wal_upto.0));
        out.put_u64_le(u64::from(erasure.segments_upto.0));
    }
}

/// A checkpoint that was read.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) head: Head,
    pub(crate) meta: Bytes,
    pub(crate) state: Bytes,
    pub(crate) index: StreamIndex,
}

/// `erasing`: it is of the kind that has erasures.
pub(crate) fn decode(payload: &[u8], erasing: bool) -> Result<Contents, DecodeError> {
    let mut reader = Reader::new(payload);
    let group = GroupId(reader.u32("group")?);
    let applied = read_id(&mut reader)?;
    let keep = read_mark(&mut reader)?;
    let replay = read_mark(&mut reader)?;
    let next_file = reader.u64("next file")?;
    let meta = Bytes::copy_from_slice(reader.bytes("meta")?);
    let state = Bytes::copy_from_slice(reader.bytes("state")?);
    let count = reader.count(9, "files")?;
    let mut files = Vec::with_capacity(count);
    for _ in 0..count {
        let id = read_file(&mut reader)?;
        let class = match reader.u8("class of a file")? {
            0 => Class::Wal,
            1 => Class::Segment,
            value => {
                return Err(DecodeError::Unknown {
                    what: "class of a file",
                    value: u64::from(value),
                });
            }
        };
        files.push((id, class));
    }
    let mut index = StreamIndex::default();
    for _ in 0..reader.count(12, "streams")? {
        let stream = StreamId(reader.u64("stream")?);
        if !index.append(stream, read_rows(&mut reader, &files)?) {
            return Err(DecodeError::Invalid {
                what: "stream",
                why: "it does not come after the one before it",
            });
        }
    }
    if erasing {
        index.erasures = read_erasures(&mut reader, &index, next_file)?;
    }
    if !reader.is_empty() {
        return Err(DecodeError::Invalid {
            what: "checkpoint",
            why: "there are bytes after its end",
        });
    }
    let head = Head {
        group,
        applied,
        keep,
        replay,
        next_file,
        files,
    };
    Ok(Contents {
        head,
        meta,
        state,
        index,
    })
}

fn read_rows(reader: &mut Reader<'_>, files: &[(FileId, Class)]) -> Result<Vec<Row>, DecodeError> {
    let count = reader.count(ROW_BYTES, "rows")?;
    let mut rows = Vec::with_capacity(count);
    let mut next = 0;
    for _ in 0..count {
        let (first, count) = (reader.u64("first sequence")?, reader.u32("count")?);
        let live = reader.u32("records that are not freed")?;
        let file = files.get(reader.u32("file of a row")? as usize);
        let row = Row {
            first,
            count,
            live,
            file: file.map_or(FileId::NONE, |(id, _)| *id),
            frame: reader.u32("frame")?,
            at: reader.u32("offset")?,
            bytes: reader.u32("bytes")?,
        };
        let ordered = first >= next && first.checked_add(u64::from(count)).is_some();
        if !ordered || live == 0 || live > count || file.is_none() || row.at.checked_add(row.bytes).is_none() {
            return Err(DecodeError::Invalid {
                what: "row",
                why: "its numbers contradict each other or the rows before it",
            });
        }
        next = row.end();
        rows.push(row);
    }
    Ok(rows)
}

fn read_erasures(reader: &mut Reader<'_>, index: &StreamIndex, next_file: u64) -> Result<Erasures, DecodeError> {
    let mut erasures = Erasures::default();
    for _ in 0..reader.count(16, "erased records")? {
        let (stream, seq) = (StreamId(reader.u64("stream")?), reader.u64("sequence")?);
        if index.find(stream, Seq(seq)).is_none() || !erasures.mark(stream, seq) {
            return Err(DecodeError::Invalid {
                what: "erased record",
                why: "no row has it, or it stands there twice",
            });
        }
    }
    for _ in 0..reader.count(17, "erasures")? {
        let record = match reader.u8("kind of an erasure")? {
            0 => None,
            1 => Some((StreamId(reader.u64("stream")?), reader.u64("sequence")?)),
            value => {
                return Err(DecodeError::Unknown {
                    what: "kind of an erasure",
                    value: u64::from(value),
                });
            }
        };
        let (wal_upto, segments_upto) = (read_file(reader)?, read_file(reader)?);
        if u64::from(wal_upto.max(segments_upto).0) >= next_file {
            return Err(DecodeError::Invalid {
                what: "erasure",
                why: "it is of files that there were not yet",
            });
        }
        erasures.begin(Erasure {
            record,
            wal_upto,
            segments_upto,
        });
    }
    Ok(erasures)
}

fn read_mark(reader: &mut Reader<'_>) -> Result<Mark, DecodeError> {
    Ok(Mark {
        file: reader.u64("file of a place")?,
        offset: reader.u32("offset of a place")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use boltq_core::codec::put_bytes;
    use boltq_core::{LogIndex, NodeId, Term};
    use proptest::prelude::*;

    fn example() -> (Head, FlatRows) {
        let head = Head {
            group: GroupId(3),
            applied: EntryId {
                term: Term(1),
                leader: NodeId(2),
                index: LogIndex(9),
            },
            keep: Mark { file: 5, offset: 64 },
            replay: Mark { file: 6, offset: 128 },
            next_file: 9,
            files: vec![(FileId(5), Class::Wal), (FileId(7), Class::Segment)],
        };
        let row = |first, file| Row {
            first,
            count: 4,
            live: 2,
            file: FileId(file),
            frame: 64,
            at: 16,
            bytes: 400,
        };
        let flat = FlatRows {
            streams: vec![(StreamId(1), 2), (StreamId(8), 1)],
            rows: vec![row(1, 5), row(9, 7), row(1, 7)],
            erasures: Erasures::default(),
        };
        (head, flat)
    }

    fn erasures() -> Erasures {
        let mut erasures = Erasures::default();
        erasures.mark(StreamId(1), 2);
        erasures.mark(StreamId(8), 4);
        for record in [Some((StreamId(1), 2)), None] {
            erasures.begin(Erasure {
                record,
                wal_upto: FileId(6),
                segments_upto: FileId(7),
            });
        }
        erasures
    }

    fn payload(erasures: Erasures) -> BytesMut {
        let (head, mut flat) = example();
        flat.erasures = erasures;
        let mut out = encode_front(&head);
        put_bytes(&mut out, b"meta");
        put_bytes(&mut out, b"state");
        out.extend_from_slice(&encode_rows(&head, &flat));
        out
    }

    #[test]
    fn a_checkpoint_comes_back() {
        let (head, flat) = example();
        let contents = decode(&payload(Erasures::default()), false).unwrap();
        assert_eq!(contents.head, head);
        assert_eq!((&contents.meta[..], &contents.state[..]), (&b"meta"[..], &b"state"[..]));
        let rows: Vec<Row> = contents.index.rows().copied().collect();
        assert_eq!(rows, flat.rows);
    }

    #[test]
    fn erasures_come_back_and_those_of_no_record_or_no_file_are_refused() {
        let bytes = payload(erasures());
        assert_eq!(decode(&bytes, true).unwrap().index.erasures, erasures());
        assert!(decode(&bytes, false).is_err(), "there are bytes after its end");
        let mut other = erasures();
        other.mark(StreamId(2), 1);
        assert!(decode(&payload(other), true).is_err());
        let mut other = erasures();
        other.begin(Erasure {
            record: None,
            wal_upto: FileId(9),
            segments_upto: FileId(1),
        });
        assert!(decode(&payload(other), true).is_err(), "the next file is 9");
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused_without_panic(bytes: Vec<u8>) {
            let _ = (decode(&bytes, false), decode(&bytes, true));
        }

        #[test]
        fn any_change_is_decoded_or_refused_without_panic(at: prop::sample::Index, value: u8) {
            let mut bytes = payload(erasures());
            let at = at.index(bytes.len());
            bytes[at] = value;
            let _ = decode(&bytes, true);
        }
    }
}
