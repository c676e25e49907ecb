//! Writing.
//!
//! A round takes all that waits, writes it in as few calls as the system allows and without copying payloads, syncs once, and
//! then completes what it took. On a thread of its own, rounds follow each other: while one is at the device, the next one
//! gathers, and a lone append is written at once. In steps, a round is written when somebody says so.
//!
//! How far the log is on the device is said by the frame that comes next. So that the last ones of an idle log are not taken
//! for a torn write when they decay, it gets one more frame that says just that.
//!
//! A file that was removed, or whose directory was replaced, takes writes and syncs as before, and nobody ever finds them. So
//! after each sync, and every few seconds, the writer looks whether the file still has its name, and stops if it has not.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use super::outgoing::Front;
use super::{Batch, Head, Outgoing, Wal};
use crate::config::SyncPolicy;
use crate::error::Failure;
use crate::files::LogFile;
use crate::frame::{Mark, PADDING};
use crate::store::Name;
use crate::types::FileId;

/// After this long without anything to write, a log says how far it is on the device.
const IDLE: Duration = Duration::from_millis(100);
/// How often the writer looks whether its file is still there, if no sync comes.
const LOOK: Duration = Duration::from_secs(2);

/// What has become of a file that is not found any more.
const GONE: &str = "the data directory was removed or replaced, or this file was, while the log was open";

/// What the writer finds when it looks for work.
enum Round {
    Write(Vec<Batch>),
    /// Nothing came, and what was written before has waited long enough.
    Sync,
    /// The log has been idle, and says how far it is on the device.
    Mark(Batch),
    /// Nothing came for so long that it is time to look for the file.
    Look,
    Close,
}

pub(crate) struct Writer {
    file: Option<(FileId, Arc<dyn LogFile>)>,
    /// Where the last frame ended.
    end: Mark,
    /// Everything before it is on the device.
    durable: Mark,
    /// Where the log ends if its last frame says how far it is on the device, and does not have to be said again.
    marked: Mark,
    /// Files that were written to since the last sync, the current one last.
    dirty: Vec<(FileId, Arc<dyn LogFile>)>,
    /// When that was last so.
    synced: Duration,
    /// When the file was last found under its name.
    found: Duration,
}

impl Writer {
    /// `durable` is where the log ended when it was opened.
    pub(crate) fn new(durable: Mark) -> Self {
        Self {
            file: None,
            end: durable,
            durable,
            marked: durable,
            dirty: Vec::new(),
            synced: Duration::ZERO,
            found: Duration::ZERO,
        }
    }

    /// Writes rounds until the log is closed or a write fails; for a thread of its own.
    pub(super) fn run(&mut self, wal: &Wal) {
        while let Some(round) = self.wait(wal) {
            if matches!(round, Round::Close) {
                return self.close(wal);
            }
            if !self.write_round(wal, round) {
                return;
            }
        }
    }

    /// Syncs what was written, and says so in the log.
    fn close(&mut self, wal: &Wal) {
        if self.write_round(wal, Round::Close) && self.mark_due().is_some() {
            let frames: Vec<Outgoing> = wal.head().mark().into_iter().collect();
            let round = Round::Mark(Batch {
                frames,
                sync: true,
                done: None,
            });
            self.write_round(wal, round);
        }
    }

    /// Writes one round, if there is something to write or to sync; returns whether there was.
    pub(super) fn turn(&mut self, wal: &Wal) -> bool {
        let round = self.next_round(wal, &mut wal.head(), wal.clock.now());
        let Some(round) = round else { return false };
        self.write_round(wal, round);
        true
    }

    /// Writes all that waits, and syncs it.
    pub(super) fn finish(&mut self, wal: &Wal) {
        while self.turn(wal) {}
        if wal.failure().is_none() {
            self.close(wal);
        }
    }

    /// Whether a turn finds something to do.
    pub(super) fn is_ready(&self, wal: &Wal, head: &Head, now: Duration) -> bool {
        let due = || !head.is_closed() && self.due(wal).is_some_and(|due| due <= now);
        wal.failure().is_none() && (head.has_batches() || due())
    }

    /// Waits for something to do; not if the log has stopped.
    fn wait(&self, wal: &Wal) -> Option<Round> {
        let mut head = wal.head();
        loop {
            let now = wal.clock.now();
            let round = self.next_round(wal, &mut head, now);
            if round.is_some() || wal.failure().is_some() {
                head.idle = false;
                return round;
            }
            if head.is_closed() {
                return Some(Round::Close);
            }
            let look = self.found + LOOK;
            if look <= now {
                head.idle = false;
                return Some(Round::Look);
            }
            head.idle = true;
            let due = self.due(wal).map_or(look, |due| due.min(look));
            wal.work.wait_for(&mut head, due.saturating_sub(now));
        }
    }

    fn next_round(&self, wal: &Wal, head: &mut Head, now: Duration) -> Option<Round> {
        if !self.is_ready(wal, head, now) {
            return None;
        }
        Some(if head.has_batches() {
            Round::Write(head.take_batches())
        } else if self.mark_due().is_some() {
            // Placed under this lock, so nothing comes between.
            match head.mark() {
                Some(frame) => Round::Mark(Batch {
                    frames: vec![frame],
                    sync: true,
                    done: None,
                }),
                None => Round::Sync,
            }
        } else {
            Round::Sync
        })
    }

    /// Returns whether it was written.
    fn write_round(&mut self, wal: &Wal, round: Round) -> bool {
        let marks = match &round {
            Round::Mark(_) => true,
            // There was no room for it.
            Round::Sync => self.dirty.is_empty(),
            Round::Write(_) | Round::Look | Round::Close => false,
        };
        let (batches, sync) = match round {
            Round::Write(batches) => {
                let sync = self.wants_sync(wal, &batches);
                (batches, sync)
            }
            Round::Mark(batch) => (vec![batch], true),
            Round::Look => (Vec::new(), false),
            Round::Sync | Round::Close => (Vec::new(), true),
        };
        wal.writing.begin(wal.clock.now());
        let written = self.write(wal, &batches);
        let outcome = written
            .and_then(|()| if sync { self.sync(wal) } else { Ok(()) })
            .and_then(|()| self.look(wal, sync));
        wal.writing.end();
        if let Err(failure) = outcome {
            wal.fail(failure, batches);
            return false;
        }
        if marks {
            self.marked = self.end;
        }
        complete(wal, batches);
        true
    }

    /// When what was written is to be synced, if nothing else comes.
    fn sync_due(&self, wal: &Wal) -> Option<Duration> {
        match wal.policy {
            SyncPolicy::Interval(interval) if !self.dirty.is_empty() => self.synced.checked_add(interval),
            SyncPolicy::Interval(_) | SyncPolicy::Always | SyncPolicy::Never => None,
        }
    }

    /// When an idle log is to say how far it is on the device.
    fn mark_due(&self) -> Option<Duration> {
        let wanted = self.dirty.is_empty() && self.marked < self.end;
        wanted.then(|| self.synced + IDLE)
    }

    /// When there is something to do, if nothing else comes.
    pub(super) fn due(&self, wal: &Wal) -> Option<Duration> {
        self.sync_due(wal).or_else(|| self.mark_due())
    }

    fn wants_sync(&self, wal: &Wal, batches: &[Batch]) -> bool {
        let elapsed = |interval: Duration| wal.clock.now().saturating_sub(self.synced) >= interval;
        batches.iter().any(|batch| batch.sync)
            || match wal.policy {
                // Nobody waits for a purge, so it rides along with what comes next.
                // But the next file is prepared when this one is known to be in use.
                SyncPolicy::Always => batches.iter().any(|batch| batch.done.is_some() || batch.opens()),
                SyncPolicy::Interval(interval) => elapsed(interval),
                SyncPolicy::Never => false,
            }
    }

    fn write(&mut self, wal: &Wal, batches: &[Batch]) -> Result<(), Failure> {
        let frames = || batches.iter().flat_map(|batch| &batch.frames);
        let fronts: Vec<Front> = frames().map(|frame| frame.front(self.durable)).collect();
        let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(fronts.len() * 3);
        let mut start = self.end;
        for (frame, front) in frames().zip(&fronts) {
            if let Some(handle) = &frame.opens {
                self.write_parts(wal, &mut parts, start)?;
                parts.clear();
                self.file = Some((frame.key.file, Arc::clone(handle)));
            }
            if parts.is_empty() {
                start = mark(frame);
            }
            parts.push(IoSlice::new(front.as_slice()));
            if !frame.data.is_empty() {
                parts.push(IoSlice::new(&frame.data));
            }
            if frame.padding_bytes() > 0 {
                parts.push(IoSlice::new(&PADDING[..frame.padding_bytes()]));
            }
        }
        self.write_parts(wal, &mut parts, start)?;
        if let Some(last) = frames().last() {
            self.end = Mark {
                offset: u32::try_from(u64::from(last.key.offset) + last.bytes()).unwrap_or(u32::MAX),
                ..mark(last)
            };
        }
        Ok(())
    }

    fn write_parts(&mut self, wal: &Wal, parts: &mut [IoSlice<'_>], start: Mark) -> Result<(), Failure> {
        if parts.is_empty() {
            return Ok(());
        }
        let Some((id, handle)) = &self.file else {
            return Err(failure(
                wal,
                "write",
                FileId::NONE,
                io::Error::other("no file was opened"),
            ));
        };
        if self.dirty.last().is_none_or(|(last, _)| last != id) {
            self.dirty.push((*id, Arc::clone(handle)));
        }
        let outcome = handle.pwritev(parts, u64::from(start.offset));
        outcome.map_err(|error| failure(wal, "write", *id, error))
    }

    fn sync(&mut self, wal: &Wal) -> Result<(), Failure> {
        let (dirty, begun) = (std::mem::take(&mut self.dirty), wal.clock.now());
        let any = !dirty.is_empty();
        for (id, handle) in dirty {
            handle.fdatasync().map_err(|error| failure(wal, "sync", id, error))?;
        }
        self.durable = self.end;
        wal.set_durable_file(self.durable.file_id());
        self.synced = wal.clock.now();
        if any {
            wal.syncs.record_time(self.synced.saturating_sub(begun));
        }
        Ok(())
    }

    /// Whether the file is still where a start looks for it: at each sync, before anybody is told that something is safe, and
    /// every few seconds. That costs two calls that do not wait for the device.
    fn look(&mut self, wal: &Wal, synced: bool) -> Result<(), Failure> {
        let now = wal.clock.now();
        if !synced && now < self.found + LOOK {
            return Ok(());
        }
        self.found = now;
        let Some((id, handle)) = &self.file else { return Ok(()) };
        match handle.is_at(&wal.frames.handles.path(Name::Wal(*id))) {
            Ok(false) => Err(failure(wal, "find", *id, io::Error::other(GONE))),
            // What cannot be told now is no reason to stop; the device has its own ways to say that it is broken.
            Ok(true) | Err(_) => Ok(()),
        }
    }
}

fn complete(wal: &Wal, batches: Vec<Batch>) {
    let keys = batches.iter().flat_map(|batch| &batch.frames).map(|frame| frame.key);
    wal.frames.cache.written(keys);
    for done in batches.into_iter().filter_map(|batch| batch.done) {
        done(Ok(()));
    }
}

fn failure(wal: &Wal, operation: &'static str, file: FileId, source: io::Error) -> Failure {
    Failure {
        operation,
        path: wal.frames.handles.path(Name::Wal(file)),
        source,
    }
}

fn mark(frame: &Outgoing) -> Mark {
    Mark {
        file: u64::from(frame.key.file.0),
        offset: frame.key.offset,
    }
}
