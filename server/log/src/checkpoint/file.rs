//! Writing and reading the file of a checkpoint.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boltq_core::codec::put_len;
use bytes::BytesMut;

use super::format::{self, FlatRows, Head};
use crate::error::{AppendError, CheckpointError, Failure};
use crate::files::LogFile;
use crate::frame::{self, Fault, Header, Kind, Mark, PADDING};
use crate::log::Disk;
use crate::store::{FrameError, Name, OwnedFrame, TMP_SUFFIX, read_frame_of};
use crate::wal::{is_out_of_room, reserve_room};

/// Writes a checkpoint under another name, over the reserve if the device is full, syncs it, gives it its name, and syncs that. Returns its name and length.
///
/// # Errors
/// The checkpoint before it stays the newest. Only if its name was given and could not be synced, nobody knows which one
/// that is after a power loss, and then the log stops.
pub(crate) fn write_file(
    disk: &Disk,
    head: &Head,
    meta: &[u8],
    state: &[u8],
    rows: &FlatRows,
) -> Result<(Name, u64), CheckpointError> {
    let mut front = format::encode_front(head);
    put_len(&mut front, meta.len());
    let mut middle = BytesMut::new();
    put_len(&mut middle, state.len());
    let end = format::encode_rows(head, rows);
    let payload: [&[u8]; 5] = [&front, meta, &middle, state, &end];
    let name = Name::Checkpoint(head.group, head.applied.index);
    let kind = if rows.erasures.is_empty() {
        Kind::Checkpoint
    } else {
        Kind::ErasingCheckpoint
    };
    let bytes = write_durably(disk, name, (kind, head.applied.index.0), &payload)?;
    Ok((name, bytes))
}

fn write_durably(
    disk: &Disk,
    name: Name,
    (kind, file): (Kind, u64),
    payload: &[&[u8]],
) -> Result<u64, CheckpointError> {
    let path = disk.dir.join(name.to_string());
    let tmp = disk.dir.join(format!("{name}{TMP_SUFFIX}"));
    let length: usize = payload.iter().map(|part| part.len()).sum();
    let length_u32 = u32::try_from(length).map_err(|_| CheckpointError::TooLarge { bytes: length as u64 })?;
    let header = Header {
        kind,
        file,
        offset: 0,
        mark: Mark::default(),
    };
    let header = frame::encode(&header, length_u32, frame::payload_crc(payload));
    let padding = &PADDING[..frame::frame_bytes(length) - frame::HEADER_BYTES - length];
    let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(payload.len() + 2);
    parts.push(IoSlice::new(&header));
    parts.extend(
        payload
            .iter()
            .copied()
            .chain([padding])
            .filter(|part| !part.is_empty())
            .map(IoSlice::new),
    );
    let bytes = frame::frame_bytes(length) as u64;
    write_and_rename(disk, &tmp, &path, &mut parts, bytes).inspect_err(|_| {
        let _ = disk.files.remove(&tmp);
    })?;
    disk.files.sync_dir(&disk.dir).map_err(|source| {
        let failure = disk.wal.stop(Failure {
            operation: "sync",
            path: disk.dir.clone(),
            source,
        });
        CheckpointError::Log(AppendError::Failed(failure))
    })?;
    Ok(bytes)
}

fn write_and_rename(
    disk: &Disk,
    tmp: &Path,
    path: &Path,
    parts: &mut [IoSlice<'_>],
    bytes: u64,
) -> Result<(), CheckpointError> {
    let at = |operation, path: &Path| {
        let path: PathBuf = path.to_owned();
        move |source: io::Error| CheckpointError::Io {
            operation,
            path,
            source,
        }
    };
    let written = disk.files.create(tmp).map_err(at("create", tmp)).and_then(|handle| {
        // Whether there is room is better known now than at the sync.
        reserve_room(&*handle, bytes).map_err(at("reserve room for", tmp))?;
        Ok(handle)
    });
    let handle = match written {
        Err(CheckpointError::Io { source, .. }) if is_out_of_room(&source) => {
            let reserve = disk.wal.reserve.take(bytes, tmp);
            let handle = reserve.ok_or_else(|| at("reserve room for", tmp)(source))?;
            tracing::info!(file = %path.display(), "the device is full, and the reserve is used for this checkpoint");
            handle
        }
        outcome => outcome?,
    };
    handle.pwritev(parts, 0).map_err(at("write", tmp))?;
    handle.set_len(bytes).map_err(at("cut", tmp))?;
    handle.fdatasync().map_err(at("sync", tmp))?;
    disk.files.rename(tmp, path).map_err(at("rename", path))
}

/// The only frame of a checkpoint; `index` is that of the last entry in it.
pub(crate) fn read_whole(handle: &Arc<dyn LogFile>, index: u64) -> Result<OwnedFrame, FrameError> {
    let frame = read_frame_of(handle, index, 0)?;
    match frame.kind {
        Kind::Checkpoint | Kind::ErasingCheckpoint => Ok(frame),
        _ => Err(Fault::NoFrame.into()),
    }
}
