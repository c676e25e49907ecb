//! The thread that writes.
//!
//! It takes all that waits, writes it in as few calls as the system allows and without copying payloads, syncs once, and
//! then completes what it took. While it is at the device, the next round gathers; a lone append is written at once.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::outgoing::Front;
use super::{Batch, Outgoing, Wal};
use crate::config::SyncPolicy;
use crate::error::Failure;
use crate::files::LogFile;
use crate::frame::{Mark, PADDING};
use crate::store::Name;
use crate::types::FileId;

/// What the writer finds when it looks for work.
enum Round {
    Write(Vec<Batch>),
    /// Nothing came, and what was written before has waited long enough.
    Sync,
    Close,
}

pub(crate) struct Writer {
    wal: Arc<Wal>,
    file: Option<(FileId, Arc<dyn LogFile>)>,
    /// Where the last frame ended.
    end: Mark,
    /// Everything before it is on the device.
    durable: Mark,
    /// Files that were written to since the last sync, the current one last.
    dirty: Vec<(FileId, Arc<dyn LogFile>)>,
    synced: Instant,
}

impl Writer {
    /// `durable` is where the log ended when it was opened.
    pub(crate) fn new(wal: Arc<Wal>, durable: Mark) -> Self {
        Self {
            wal,
            file: None,
            end: durable,
            durable,
            dirty: Vec::new(),
            synced: Instant::now(),
        }
    }

    /// Runs until the log is closed or a write fails.
    pub(crate) fn run(mut self) {
        loop {
            let (batches, close) = match self.next_round() {
                Round::Write(batches) => (batches, false),
                Round::Sync => (Vec::new(), false),
                Round::Close => (Vec::new(), true),
            };
            let sync = close || batches.is_empty() || self.wants_sync(&batches);
            let written = self.write(&batches);
            if let Err(failure) = written.and_then(|()| if sync { self.sync() } else { Ok(()) }) {
                return self.wal.fail(failure, batches);
            }
            self.complete(batches);
            if close {
                return;
            }
        }
    }

    fn next_round(&self) -> Round {
        let mut head = self.wal.head();
        loop {
            if head.has_batches() {
                head.idle = false;
                return Round::Write(head.take_batches());
            }
            if head.is_closed() {
                return Round::Close;
            }
            head.idle = true;
            match self.sync_due() {
                None => self.wal.work.wait(&mut head),
                Some(due) => {
                    if self.wal.work.wait_until(&mut head, due).timed_out() && !head.has_batches() {
                        head.idle = false;
                        return Round::Sync;
                    }
                }
            }
        }
    }

    fn sync_due(&self) -> Option<Instant> {
        match self.wal.policy {
            SyncPolicy::Interval(interval) if !self.dirty.is_empty() => self.synced.checked_add(interval),
            SyncPolicy::Interval(_) | SyncPolicy::Always | SyncPolicy::Never => None,
        }
    }

    fn wants_sync(&self, batches: &[Batch]) -> bool {
        let elapsed = |interval: Duration| self.synced.elapsed() >= interval;
        batches.iter().any(|batch| batch.sync)
            || match self.wal.policy {
                // Nobody waits for a purge, so it rides along with what comes next.
                SyncPolicy::Always => batches.iter().any(|batch| batch.done.is_some()),
                SyncPolicy::Interval(interval) => elapsed(interval),
                SyncPolicy::Never => false,
            }
    }

    fn write(&mut self, batches: &[Batch]) -> Result<(), Failure> {
        let frames = || batches.iter().flat_map(|batch| &batch.frames);
        let fronts: Vec<Front> = frames().map(|frame| frame.front(self.durable)).collect();
        let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(fronts.len() * 3);
        let mut start = self.end;
        for (frame, front) in frames().zip(&fronts) {
            if let Some(handle) = &frame.opens {
                self.write_parts(&mut parts, start)?;
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
        self.write_parts(&mut parts, start)?;
        if let Some(last) = frames().last() {
            self.end = Mark {
                offset: u32::try_from(u64::from(last.key.offset) + last.bytes()).unwrap_or(u32::MAX),
                ..mark(last)
            };
        }
        Ok(())
    }

    fn write_parts(&mut self, parts: &mut [IoSlice<'_>], start: Mark) -> Result<(), Failure> {
        if parts.is_empty() {
            return Ok(());
        }
        let Some((id, handle)) = &self.file else {
            return Err(self.failure("write", FileId::NONE, io::Error::other("no file was opened")));
        };
        if self.dirty.last().is_none_or(|(last, _)| last != id) {
            self.dirty.push((*id, Arc::clone(handle)));
        }
        let outcome = handle.pwritev(parts, u64::from(start.offset));
        outcome.map_err(|error| self.failure("write", *id, error))
    }

    fn sync(&mut self) -> Result<(), Failure> {
        for (id, handle) in std::mem::take(&mut self.dirty) {
            handle.fdatasync().map_err(|error| self.failure("sync", id, error))?;
        }
        self.durable = self.end;
        self.wal.set_durable_file(self.durable.file_id());
        self.synced = Instant::now();
        Ok(())
    }

    fn complete(&self, batches: Vec<Batch>) {
        let keys = batches.iter().flat_map(|batch| &batch.frames).map(|frame| frame.key);
        self.wal.frames.cache.written(keys);
        for done in batches.into_iter().filter_map(|batch| batch.done) {
            done(Ok(()));
        }
    }

    fn failure(&self, operation: &'static str, file: FileId, source: io::Error) -> Failure {
        Failure {
            operation,
            path: self.wal.frames.handles.path(Name::Wal(file)),
            source,
        }
    }
}

fn mark(frame: &Outgoing) -> Mark {
    Mark {
        file: u64::from(frame.key.file.0),
        offset: frame.key.offset,
    }
}
