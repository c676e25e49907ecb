//! Snapshots on their way from one node to another: the newest checkpoint of the log, with its records.
//!
//! ```text
//! chunk  head   see `wire::SnapshotHead`, the first
//!        state  u8 1, bytes                     the state of the machine, in pieces
//!        runs   u8 2, runs: u64 stream, u64 first, u32 count, u32 live, u32 length, records
//!        end    u8 3, u64 number of runs        the last: nothing is missing
//! ```

use std::sync::Arc;

use boltq_core::codec::{Reader, put_bytes};
use boltq_core::{DecodeError, Seq, StreamId};
use boltq_log::{EntryId, Export, ExportedRun, GroupLog, Install, InstallError};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::runtime::blocking;
use crate::types::Vote;
use crate::watched::Watched;
use crate::wire::SnapshotHead;

/// About what one chunk has.
const CHUNK_BYTES: usize = 1 << 20;
/// More state than this is refused: it has to be in memory as a whole.
const STATE_BYTES_MAX: usize = 1 << 30;

const STATE: u8 = 1;
const RUNS: u8 = 2;
const END: u8 = 3;

/// Stream, first, count, live, length.
const RUN_HEAD_BYTES: usize = 8 + 8 + 4 + 4 + 4;

/// What openraft hands around as a snapshot.
pub(crate) enum SnapshotData {
    /// The newest checkpoint of our own log.
    Own,
    /// What came from another node.
    Received(Box<Received>),
}

/// A snapshot that is here as a whole, and not installed yet.
pub(crate) struct Received {
    install: Install,
    pub(crate) applied: EntryId,
    membership: Bytes,
    pub(crate) state: Bytes,
    /// Gone when it is installed, or never will be.
    _installing: InstallGuard,
}

/// How many snapshots are here as a whole and not installed yet.
#[derive(Debug)]
pub(crate) struct Installing(Watched<usize>);

impl Default for Installing {
    fn default() -> Self {
        Self(Watched::new(0))
    }
}

impl Installing {
    pub(crate) fn begin(self: &Arc<Self>) -> InstallGuard {
        self.0.change(|count| *count += 1);
        InstallGuard(self.clone())
    }

    /// Returns when there is none; at once, if there is none.
    pub(crate) async fn ended(&self) {
        // The sender is `self`, so there is no other end.
        self.0.watch().until(|count| *count == 0).await;
    }
}

#[derive(Debug)]
pub(crate) struct InstallGuard(Arc<Installing>);

impl Drop for InstallGuard {
    fn drop(&mut self) {
        self.0.0.change(|count| *count -= 1);
    }
}

impl Received {
    /// See `encoding::read_stored_membership`.
    pub(crate) fn membership(&self) -> &Bytes {
        &self.membership
    }

    /// Replaces what the log has of the group. Blocks.
    pub(crate) fn commit(self) -> Result<(), InstallError> {
        self.install.commit(self.applied, &self.membership, &self.state)
    }
}

/// The newest checkpoint as the chunks of a transfer.
pub(crate) fn chunks(log: &GroupLog, vote: Vote) -> BoxStream<'static, Result<Bytes, String>> {
    let start = Sending::Start(log.clone(), vote);
    stream::unfold(Some(start), |sending| async move {
        // The device is read.
        let step = blocking(move || sending.map(Sending::step)).await;
        match step {
            Ok(None) => None,
            Ok(Some(Ok((chunk, next)))) => Some((Ok(chunk), next)),
            Ok(Some(Err(why))) => Some((Err(why), None)),
            Err(error) => Some((Err(error.to_string()), None)),
        }
    })
    .boxed()
}

/// How far a transfer has come.
enum Sending {
    Start(GroupLog, Vote),
    State { export: Box<Export>, left: Bytes },
    Runs { export: Box<Export>, sent: u64 },
}

impl Sending {
    /// The next chunk, and what comes after it.
    fn step(self) -> Result<(Bytes, Option<Self>), String> {
        match self {
            Self::Start(log, vote) => {
                let export = log.export().map_err(|error| error.to_string())?;
                let export = Box::new(export.ok_or("there is no checkpoint yet")?);
                let head = SnapshotHead {
                    vote,
                    applied: export.applied(),
                    membership: export.meta().clone(),
                };
                let left = export.state().clone();
                Ok((head.encode(), Some(Self::State { export, left })))
            }
            Self::State { export, mut left } => {
                let piece = left.split_to(left.len().min(CHUNK_BYTES));
                let mut out = BytesMut::with_capacity(1 + piece.len());
                out.put_u8(STATE);
                out.put_slice(&piece);
                let next = if left.is_empty() {
                    Self::Runs { export, sent: 0 }
                } else {
                    Self::State { export, left }
                };
                Ok((out.freeze(), Some(next)))
            }
            Self::Runs { mut export, sent } => {
                let runs = export.next(CHUNK_BYTES).map_err(|error| error.to_string())?;
                if runs.is_empty() {
                    let mut out = BytesMut::with_capacity(9);
                    out.put_u8(END);
                    out.put_u64_le(sent);
                    return Ok((out.freeze(), None));
                }
                let sent = sent + runs.len() as u64;
                Ok((encode_runs(&runs), Some(Self::Runs { export, sent })))
            }
        }
    }
}

fn encode_runs(runs: &[ExportedRun]) -> Bytes {
    let bytes: usize = runs.iter().map(|run| RUN_HEAD_BYTES + run.data.len()).sum();
    let mut out = BytesMut::with_capacity(1 + bytes);
    out.put_u8(RUNS);
    for run in runs {
        out.put_u64_le(run.stream.0);
        out.put_u64_le(run.first.0);
        out.put_u32_le(run.count);
        out.put_u32_le(run.live);
        put_bytes(&mut out, &run.data);
    }
    out.freeze()
}

fn read_run(reader: &mut Reader<'_>, chunk: &Bytes) -> Result<ExportedRun, DecodeError> {
    Ok(ExportedRun {
        stream: StreamId(reader.u64("stream of a run")?),
        first: Seq(reader.u64("first of a run")?),
        count: reader.u32("count of a run")?,
        live: reader.u32("live records of a run")?,
        data: chunk.slice_ref(reader.bytes("records of a run")?),
    })
}

/// Puts a snapshot together from its chunks.
pub(crate) struct Receiving {
    head: SnapshotHead,
    install: Install,
    state: BytesMut,
    runs: u64,
    complete: bool,
}

impl Receiving {
    /// From the first chunk.
    pub(crate) fn begin(log: &GroupLog, head: &Bytes) -> Result<Self, String> {
        let head = SnapshotHead::decode(head).map_err(|error| error.to_string())?;
        let install = log.begin_install().map_err(|error| error.to_string())?;
        Ok(Self {
            head,
            install,
            state: BytesMut::new(),
            runs: 0,
            complete: false,
        })
    }

    /// Takes the next chunk. Blocks.
    pub(crate) fn add(&mut self, chunk: &Bytes) -> Result<(), String> {
        if self.complete {
            return Err("a chunk after the last one".to_owned());
        }
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let mut reader = Reader::new(chunk);
        match reader.u8("chunk of a snapshot").map_err(|error| text(&error))? {
            STATE => {
                let piece = reader.rest();
                if self.state.len() + piece.len() > STATE_BYTES_MAX {
                    return Err(format!("the state has more than {STATE_BYTES_MAX} bytes"));
                }
                self.state.put_slice(piece);
            }
            RUNS => {
                while !reader.is_empty() {
                    let run = read_run(&mut reader, chunk).map_err(|error| text(&error))?;
                    self.install.add(&run).map_err(|error| text(&error))?;
                    self.runs += 1;
                }
            }
            END => {
                let sent = reader.u64("number of runs").map_err(|error| text(&error))?;
                if sent != self.runs {
                    return Err(format!("{} of {sent} runs arrived", self.runs));
                }
                self.complete = true;
            }
            other => return Err(format!("a chunk of the unknown kind {other}")),
        }
        Ok(())
    }

    pub(crate) fn vote(&self) -> Vote {
        self.head.vote
    }

    /// All of it, if nothing is missing. Until it is installed, `installing` says so.
    pub(crate) fn end(self, installing: InstallGuard) -> Result<Received, String> {
        if !self.complete {
            return Err("the snapshot broke off".to_owned());
        }
        Ok(Received {
            install: self.install,
            applied: self.head.applied,
            membership: self.head.membership,
            state: self.state.freeze(),
            _installing: installing,
        })
    }
}
