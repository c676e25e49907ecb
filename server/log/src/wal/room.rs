//! Room on the device.

use std::io::{self, IoSlice};

use crate::files::LogFile;

/// Zeroes that are written at once.
const ZERO_BYTES: usize = 1 << 20;
/// Whether there is no room on the device, or none for this user.
pub(crate) fn is_out_of_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether this process, or the system, has too many files open.
pub(super) fn is_out_of_handles(error: &io::Error) -> bool {
    const HANDLES: [rustix::io::Errno; 2] = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    HANDLES
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Reserves room for `bytes`; returns whether the file system can do that.
pub(crate) fn reserve_room(handle: &dyn LogFile, bytes: u64) -> io::Result<bool> {
    match handle.allocate(bytes) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// Writes zeroes up to `bytes`.
pub(super) fn fill(handle: &dyn LogFile, bytes: u64) -> io::Result<()> {
    let zeroes = vec![0; ZERO_BYTES];
    let mut at = 0;
    while at < bytes {
        let step = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(ZERO_BYTES);
        handle.pwritev(&mut [IoSlice::new(&zeroes[..step])], at)?;
        at += step as u64;
    }
    Ok(())
}
