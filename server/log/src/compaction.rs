//! Rewriting files of which little is wanted, on a thread of its own or in steps.
//!
//! One pass picks some files, copies the rows that point into them, sorted by group, stream and sequence, into a segment,
//! and then has those rows that still exist point there. Until the segment has its name on the device nothing has changed,
//! and a crash leaves a file that the next start removes; after that, the old files stay until checkpoints that refer to
//! them are replaced. A backlog that is read rarely and wanted as a whole is not touched, unless it lies in many small files:
//! each start begins a new one, or something is to be erased from it: see [`crate::erasing`], which takes its turns here, between
//! the passes. A pass leaves out the bytes of records that are erased. What is erased while it goes on may be in its segment, which
//! is known by its id: that is taken before the first row is looked at.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, StreamId};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::error::ReadError;
use crate::index::{Moved, Row, without};
use crate::log::{Disk, Plane};
use crate::segment::{Length, SegmentWriter};
use crate::store::{Account, Class, Name, Pins, TMP_SUFFIX};
use crate::types::{FileId, FrameKey};

/// Bytes of records that a pass copies, more or less: they are in memory meanwhile.
const PASS_BYTES: u64 = 16 << 20;
/// Rows that are looked at, or replaced, while the index is locked.
const LOCKED_ROWS: usize = 4096;
/// A file with more rows than this …
const SMALL_ROWS: u64 = 4096;
/// … of less than this many bytes on average is worth a copy for the memory that its rows take.
const SMALL_ROW_BYTES: u64 = 2 << 10;
/// Files of less than a quarter of their full length that may be left alone.
const SMALL_FILES_MAX: usize = 16;
/// Time until the next attempt when a pass failed.
const RETRY: Duration = Duration::from_secs(5);

/// Says whether something may be worth a pass, and wakes the thread.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: bool,
    /// The last pass failed, and this is when to try again.
    retry_at: Option<Duration>,
    closed: bool,
}

impl State {
    fn is_ready(&self, now: Duration) -> bool {
        !self.closed && (self.asked || self.retry_at.is_some_and(|at| at <= now))
    }
}

/// A row to be copied.
#[derive(Clone)]
struct Copy {
    group: GroupId,
    stream: StreamId,
    row: Row,
    records: Bytes,
    /// Records that are erased, and whose bytes are left out.
    erased: Vec<u64>,
}

/// Rows that were copied, with where they are now.
struct Copied {
    group: GroupId,
    stream: StreamId,
    moved: Moved,
    erased: Vec<u64>,
}

impl Compaction {
    /// Something may be worth it now.
    pub(crate) fn ask(&self) {
        self.state.lock().asked = true;
        self.wake.notify_one();
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_all();
    }

    /// Runs until the log is closed; for a thread of its own.
    pub(crate) fn run(&self, plane: &Plane, disk: &Disk) {
        while self.wait(disk) {
            self.turn(plane, disk);
        }
    }

    /// Makes one pass if there may be something for it; returns whether it did.
    pub(crate) fn turn(&self, plane: &Plane, disk: &Disk) -> bool {
        {
            let mut state = self.state.lock();
            if !state.is_ready(disk.wal.clock.now()) {
                return false;
            }
            (state.asked, state.retry_at) = (false, None);
        }
        let outcome = disk.erasing.turn(plane, disk).and_then(|()| pass(plane, disk));
        match outcome {
            // There may be more.
            Ok(more) => self.state.lock().asked |= more,
            Err(error) => {
                tracing::warn!(%error, "compaction failed and will be tried again; nothing is lost");
                self.state.lock().retry_at = Some(disk.wal.clock.now() + RETRY);
            }
        }
        true
    }

    pub(crate) fn is_ready(&self, disk: &Disk) -> bool {
        self.state.lock().is_ready(disk.wal.clock.now())
    }

    /// When to try again after a pass failed.
    pub(crate) fn due(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.retry_at.filter(|_| !state.closed)
    }

    /// Waits for something to do; not if the log is closed.
    fn wait(&self, disk: &Disk) -> bool {
        let mut state = self.state.lock();
        loop {
            let now = disk.wal.clock.now();
            if state.closed || state.is_ready(now) {
                return !state.closed;
            }
            match state.retry_at {
                None => self.wake.wait(&mut state),
                Some(at) => {
                    self.wake.wait_for(&mut state, at.saturating_sub(now));
                }
            }
        }
    }
}

/// Copies what is wanted of some files; returns whether there was something to do.
fn pass(plane: &Plane, disk: &Disk) -> io::Result<bool> {
    let Some(victims) = pick(plane, disk) else {
        return Ok(false);
    };
    // Before the first row is looked at: what is erased from here on is known to be in it, perhaps.
    let id = disk.wal.next_file_id()?;
    let mut copies = collect(plane, victims.files());
    if copies.is_empty() {
        return Ok(false);
    }
    if let Err(error) = read(disk, &mut copies) {
        let ReadError::Damaged { .. } = error else {
            return Err(io::Error::other(error));
        };
        // What is left of it can be read where it is; a copy would have to leave something out.
        tracing::error!(%error, "a file is left out of compaction");
        return Ok(true);
    }
    copies.sort_unstable_by_key(|copy| (copy.group, copy.stream, copy.row.first));
    let (copied, segment) = write(plane, disk, id, &copies)?;
    drop(copies);
    swap(plane, disk, &copied);
    drop(segment);
    drop(victims);
    disk.wal.tidy();
    Ok(true)
}

/// Pins the files that are worth it, the emptiest first.
fn pick(plane: &Plane, disk: &Disk) -> Option<Pins> {
    let accounts = disk.frames.accounts.snapshot();
    let doomed = disk.erasing.doomed();
    let total: u64 = accounts.iter().map(|(_, account)| account.bytes).sum();
    let large = total > plane.config.compaction_threshold;
    let replay_from = disk.wal.replay_from();
    let is_small = |account: &Account| account.bytes < plane.config.wal_file_bytes / 4;
    let mut worth = accounts;
    worth.retain(|(id, account)| account.class == Class::Segment || *id < replay_from);
    worth.retain(|(_, account)| account.rows > 0 && !account.damaged);
    let many_small = worth.iter().filter(|(_, account)| is_small(account)).count() > SMALL_FILES_MAX;
    worth.retain(|(id, account)| {
        doomed.has(*id, account) || large && is_worth_it(account) || many_small && is_small(account)
    });
    worth.sort_unstable_by_key(|(id, account)| (!doomed.has(*id, account), account.live_bytes));
    let mut files = Vec::new();
    let mut live_bytes = 0;
    for (id, account) in worth {
        live_bytes += account.live_bytes;
        if !files.is_empty() && live_bytes > PASS_BYTES {
            break;
        }
        files.push(id);
    }
    (!files.is_empty()).then(|| disk.frames.accounts.pin(files))
}

fn is_worth_it(account: &Account) -> bool {
    let sparse = account.live_bytes < account.full_bytes / 2;
    // A segment is sorted already: what is small in there has no neighbours.
    let small =
        account.class == Class::Wal && account.rows > SMALL_ROWS && account.live_bytes < account.rows * SMALL_ROW_BYTES;
    sparse || small
}

/// The rows that point into `files`.
fn collect(plane: &Plane, files: &[FileId]) -> Vec<Copy> {
    let groups: Vec<_> = plane.groups.lock().values().cloned().collect();
    let mut copies = Vec::new();
    for group in groups {
        let mut after = None;
        loop {
            let index = group.index.read();
            let (page, more) = index.page(after, LOCKED_ROWS);
            after = page.last().map(|(stream, row)| (*stream, row.end()));
            let wanted = page.into_iter().filter(|(_, row)| files.contains(&row.file));
            copies.extend(wanted.map(|(stream, row)| Copy {
                group: group.id,
                stream,
                row,
                records: Bytes::new(),
                erased: index.erasures.marked(stream, row.first, row.end()),
            }));
            drop(index);
            if !more {
                break;
            }
        }
    }
    copies
}

/// Reads the records, each frame once and in the order of the files.
fn read(disk: &Disk, copies: &mut [Copy]) -> Result<(), ReadError> {
    copies.sort_unstable_by_key(|copy| (copy.row.key(), copy.row.at));
    let mut frame: Option<(FrameKey, Bytes)> = None;
    for copy in copies {
        let key = copy.row.key();
        let body = match &frame {
            Some((last, body)) if *last == key => body,
            _ => {
                let body = match disk.frames.cached(key) {
                    Some(body) => body,
                    None => disk
                        .frames
                        .read_body(key)
                        .inspect_err(|_| disk.frames.accounts.mark_damaged(key.file))?,
                };
                &frame.insert((key, body)).1
            }
        };
        let start = copy.row.at as usize;
        let Some(records) = body.get(start..start + copy.row.bytes as usize) else {
            disk.frames.accounts.mark_damaged(key.file);
            return Err(disk.frames.damaged(key, "it is shorter than its records"));
        };
        // A copy, so that a row does not hold the whole frame.
        copy.records = if copy.erased.is_empty() {
            Bytes::copy_from_slice(records)
        } else {
            let rest = without(records, copy.row.first, &copy.erased);
            let misfit = |_| disk.frames.damaged(key, "its records do not fit their index");
            rest.map(Bytes::from)
                .map_err(misfit)
                .inspect_err(|_| disk.frames.accounts.mark_damaged(key.file))?
        };
    }
    Ok(())
}

/// Writes the segment; its account is open and pinned.
fn write(plane: &Plane, disk: &Disk, id: FileId, copies: &[Copy]) -> io::Result<(Vec<Copied>, Pins)> {
    let name = Name::Segment(id);
    let tmp = disk.dir.join(format!("{name}{TMP_SUFFIX}"));
    let written = write_segment(disk, id, &tmp, copies, plane.config.row_bytes).and_then(|written| {
        disk.files.rename(&tmp, &disk.dir.join(name.to_string()))?;
        disk.files.sync_dir(&disk.dir)?;
        Ok(written)
    });
    let (copied, length) = written.inspect_err(|_| {
        if disk
            .files
            .remove(&tmp)
            .is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        {
            disk.frames.accounts.leave(id);
        }
    })?;
    Ok((
        copied,
        disk.frames
            .accounts
            .open_segment(id, length.file_bytes, length.record_bytes),
    ))
}

fn write_segment(
    disk: &Disk,
    id: FileId,
    path: &std::path::Path,
    copies: &[Copy],
    row_bytes: u32,
) -> io::Result<(Vec<Copied>, Length)> {
    let mut writer = SegmentWriter::new(id, disk.files.create(path)?);
    let mut copied = Vec::with_capacity(copies.len());
    let mut rest = copies;
    while let Some(first) = rest.first() {
        let (run, after) = rest.split_at(run_length(rest, row_bytes));
        let records = run.iter().map(|copy| &copy.records[..]).collect::<Vec<_>>().concat();
        let count = run.iter().map(|copy| copy.row.count).sum();
        let frame = writer.add(first.group, first.stream, first.row.first, count, &records)?;
        let mut at = 0;
        for copy in run {
            let bytes = u32::try_from(copy.records.len()).map_err(io::Error::other)?;
            let row = Row {
                file: id,
                frame,
                at,
                bytes,
                ..copy.row
            };
            copied.push(Copied {
                group: copy.group,
                stream: copy.stream,
                moved: (copy.row.key(), copy.row.at, row),
                erased: copy.erased.clone(),
            });
            at += bytes;
        }
        rest = after;
    }
    Ok((copied, writer.finish()?))
}

/// Number of rows at the start that follow each other and fit into a frame together.
fn run_length(copies: &[Copy], row_bytes: u32) -> usize {
    let mut bytes = copies.first().map_or(0, |copy| copy.row.bytes);
    let follow = copies.windows(2).take_while(|pair| {
        let (last, next) = (&pair[0], &pair[1]);
        bytes = bytes.saturating_add(next.row.bytes);
        let same = last.group == next.group && last.stream == next.stream;
        same && last.row.end() == next.row.first && bytes <= row_bytes
    });
    follow.count() + 1
}

/// Has the rows that still exist point to the copy.
fn swap(plane: &Plane, disk: &Disk, copied: &[Copied]) {
    for part in copied
        .chunk_by(|a, b| a.group == b.group)
        .flat_map(|part| part.chunks(LOCKED_ROWS))
    {
        let Some(group) = part
            .first()
            .and_then(|copied| plane.groups.lock().get(&copied.group).map(Arc::clone))
        else {
            continue;
        };
        let mut changes = plane.store.changes();
        let mut index = group.index.write();
        for rows in part.chunk_by(|a, b| a.stream == b.stream) {
            let moved: Vec<Moved> = rows.iter().map(|copied| copied.moved).collect();
            index.replace(rows[0].stream, &moved, plane.config.row_bytes, &mut changes);
            for copied in rows {
                for seq in &copied.erased {
                    index.unmark_in(copied.stream, *seq, copied.moved.2.file);
                }
            }
        }
        disk.frames.accounts.book(&changes);
    }
}
