//! Taking over where the records of an applied entry are, and which records are no longer wanted.

use boltq_core::{DecodeError, LogIndex, Seq, StorageEffect, StreamId};
use bytes::Bytes;

use crate::entries::Slot;
use crate::error::{PlaceError, ReadError};
use crate::group::GroupLog;
use crate::index::{Erasure, NotPlaced, Row, StreamIndex, split};
use crate::log::Store;
use crate::store::Changes;

/// What a placed effect says.
#[derive(Clone, Copy)]
struct Placed {
    stream: StreamId,
    first: Seq,
    count: u32,
    offset: u32,
    bytes: u32,
}

impl GroupLog {
    /// Takes over the effects of entry `index`, which was applied; offsets are counted from the start of its data. The entry
    /// may still be on its way to the device.
    ///
    /// # Errors
    /// The effects contradict the entry or what was placed before: then state and log are not of one mind, and the group
    /// has to stop. Effects before the one that is named were taken over.
    pub fn place(&self, index: LogIndex, effects: &[StorageEffect]) -> Result<(), PlaceError> {
        if effects.is_empty() {
            return Ok(());
        }
        let slot = self.group.raft.lock().table.get(index).copied();
        let store = &self.plane().store;
        let mut changes = store.changes();
        let mut rows = self.group.index.write();
        let mut body = None;
        let mut outcome = Ok(());
        for effect in effects {
            outcome = match *effect {
                StorageEffect::Placed {
                    stream,
                    first,
                    count,
                    offset,
                    bytes,
                } => {
                    let placed = Placed {
                        stream,
                        first,
                        count,
                        offset,
                        bytes,
                    };
                    self.place_records(index, slot, placed, &mut body, &mut rows, &mut changes)
                }
                StorageEffect::Freed { stream, first, count } => {
                    rows.free(stream, first, count, &mut changes)
                        .map_err(|_| PlaceError::NotPlaced {
                            group: self.group.id,
                            index,
                            stream,
                            first,
                            count,
                        })
                }
                StorageEffect::Erased { stream, seq } => {
                    self.erase(stream, seq, &mut rows, &mut changes)
                        .map_err(|_| PlaceError::NotPlaced {
                            group: self.group.id,
                            index,
                            stream,
                            first: seq,
                            count: 1,
                        })
                }
            };
            if outcome.is_err() {
                break;
            }
        }
        self.book(&changes, &mut rows);
        outcome
    }

    /// `body` is that of the entry, once it was needed: it is read once, though it may be too large for the cache.
    fn place_records(
        &self,
        index: LogIndex,
        slot: Option<Slot>,
        placed: Placed,
        body: &mut Option<Bytes>,
        rows: &mut StreamIndex,
        changes: &mut Changes,
    ) -> Result<(), PlaceError> {
        let group = self.group.id;
        let slot = slot.ok_or(PlaceError::Read(ReadError::NoEntry { group, index }))?;
        let Placed { stream, first, .. } = placed;
        let next = rows.next(stream);
        if first.0 < next {
            return Err(PlaceError::Order {
                group,
                index,
                stream,
                first,
                next: Seq(next),
            });
        }
        let misfit = |source| PlaceError::Records {
            group,
            index,
            stream,
            first,
            source,
        };
        let row = row(&slot, &placed).map_err(misfit)?;
        let row_bytes = self.plane().config.row_bytes;
        let new = if row.bytes <= row_bytes {
            vec![row]
        } else {
            let body = match body {
                Some(body) => body,
                None => body.insert(self.plane().store.body(slot.key)?),
            };
            split(&row, body, row_bytes).map_err(misfit)?
        };
        if let Store::Memory(memory) = &self.plane().store {
            memory.placed(stream, &new);
        }
        rows.push(stream, new, row_bytes, changes);
        Ok(())
    }

    /// Under the lock of the index: what reads rows later finds the record erased, and what has read them before has a file that
    /// is up to the last one there is.
    fn erase(
        &self,
        stream: StreamId,
        seq: Seq,
        rows: &mut StreamIndex,
        changes: &mut Changes,
    ) -> Result<(), NotPlaced> {
        let key = rows.erase(stream, seq, changes)?;
        if let Store::Disk(disk) = &self.plane().store {
            disk.frames.cache.forget(key);
            let upto = disk.wal.begin_erasure();
            rows.erasures.begin(Erasure {
                record: Some((stream, seq.0)),
                wal_upto: upto,
                segments_upto: upto,
            });
        }
        Ok(())
    }

    /// Books what happened to rows; in memory mode this is where frames are copied.
    fn book(&self, changes: &Changes, rows: &mut StreamIndex) {
        if changes.is_empty() {
            return;
        }
        match &self.plane().store {
            Store::Memory(memory) => {
                memory.book(changes);
                let shrunk = changes
                    .frames()
                    .filter(|(_, change)| change.rows < 0)
                    .map(|(key, _)| key);
                memory.copy_sparse(shrunk, rows, self.plane().config.row_bytes);
            }
            Store::Disk(disk) => {
                if disk.frames.accounts.book(changes) {
                    disk.wal.tidy();
                }
            }
        }
    }
}

/// All of the records as one row.
fn row(slot: &Slot, placed: &Placed) -> Result<Row, DecodeError> {
    let end = placed.offset.checked_add(placed.bytes);
    let end_seq = placed.first.0.checked_add(u64::from(placed.count));
    if placed.count == 0 || end.is_none_or(|end| end > slot.bytes) || end_seq.is_none() {
        return Err(DecodeError::Invalid {
            what: "place",
            why: "it has no records, or ends beyond the entry",
        });
    }
    Ok(Row {
        first: placed.first.0,
        count: placed.count,
        live: placed.count,
        file: slot.key.file,
        frame: slot.key.offset,
        at: placed.offset,
        bytes: placed.bytes,
    })
}
