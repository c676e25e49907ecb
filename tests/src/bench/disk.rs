//! What one synced write costs on the disk of the measurements.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use hdrhistogram::Histogram;

use super::load::Latency;
use super::load_grpc::latencies;
use crate::harness::Directory;

const WRITE_BYTES: usize = 4096;
const WRITES: u64 = 1_000;

/// Writes 4 KiB and calls fdatasync, again and again, into a file whose blocks exist: what a log does for a lone entry.
pub(super) fn sync_latency() -> io::Result<Latency> {
    let directory = Directory::new();
    let file = File::create(directory.path().join("sync"))?;
    let block = vec![0; WRITE_BYTES];
    for position in 0..WRITES {
        file.write_all_at(&block, position * WRITE_BYTES as u64)?;
    }
    file.sync_all()?;
    let mut times: Histogram<u64> = latencies();
    let block = vec![1; WRITE_BYTES];
    for position in 0..WRITES {
        let started = Instant::now();
        file.write_all_at(&block, position * WRITE_BYTES as u64)?;
        file.sync_data()?;
        times.saturating_record(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(Latency::of(&times))
}
