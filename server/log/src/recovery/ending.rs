//! Making sure that what was read is on the device, and that the log ends there.

use std::io::IoSlice;

use super::directory::{Directory, io_error};
use super::reading::Read;
use crate::error::OpenError;
use crate::frame::Mark;
use crate::store::Name;
use crate::wal::Outgoing;

/// What is written again at a time.
const WRITE_AGAIN_BYTES: u64 = 1 << 20;

/// Writes what is perhaps not on the device once more. Where a sync had failed before the process ended, the system still shows
/// what was written, takes it for clean, and would not write it with the next sync.
pub(super) fn write_again(directory: &Directory, read: &Read) -> Result<(), OpenError> {
    for id in read.files.iter().filter(|id| u64::from(id.0) >= read.mark.file) {
        let path = directory.join(Name::Wal(*id));
        let handle = directory.open(Name::Wal(*id))?;
        let length = handle.len().map_err(io_error("read", &path))?;
        let end = if *id == read.last { u64::from(read.end) } else { length };
        let marked = u64::from(id.0) == read.mark.file;
        let mut at = if marked { u64::from(read.mark.offset) } else { 0 };
        while at < end {
            let piece = (end - at).min(WRITE_AGAIN_BYTES);
            let mut bytes = vec![0; usize::try_from(piece).unwrap_or_default()];
            handle.pread(&mut bytes, at).map_err(io_error("read", &path))?;
            let written = handle.pwritev(&mut [IoSlice::new(&bytes)], at);
            written.map_err(io_error("write", &path))?;
            at += piece;
        }
    }
    Ok(())
}

/// Syncs the files of the log, and gives back what lies behind its end.
pub(super) fn sync(directory: &Directory, read: &mut Read) -> Result<(), OpenError> {
    for id in &read.files {
        let path = directory.join(Name::Wal(*id));
        let handle = directory.open(Name::Wal(*id))?;
        if *id == read.last && !read.is_cut {
            let end = Outgoing::end(*id, read.end);
            let cut_at = u64::from(read.end) + end.bytes();
            // With less than that behind its end, there is nothing to give back.
            if cut_at <= handle.len().map_err(io_error("read", &path))? {
                let front = end.front(Mark::default());
                let mut parts = [IoSlice::new(front.as_slice())];
                handle
                    .pwritev(&mut parts, u64::from(read.end))
                    .map_err(io_error("write", &path))?;
                read.end = u32::try_from(cut_at).unwrap_or(u32::MAX);
                read.is_cut = true;
            }
        }
        handle.fdatasync().map_err(io_error("sync", &path))?;
        // Not before: a file that is shorter than it was made has to say why.
        if *id == read.last && read.is_cut {
            handle.set_len(u64::from(read.end)).map_err(io_error("cut", &path))?;
            handle.fdatasync().map_err(io_error("sync", &path))?;
        }
    }
    Ok(())
}
