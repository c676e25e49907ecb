//! Directories on the disk that the build uses.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use tempfile::TempDir;

use super::network;

/// Where one server lives: its configuration, its log, and its data below `data`. Removed when dropped.
#[derive(Debug)]
pub struct Directory {
    root: TempDir,
}

impl Directory {
    /// A new directory beside the executables, and not in the temporary directory of the system: that one is often
    /// memory, where a sync costs nothing and proves nothing.
    pub fn new() -> Self {
        let base = build_directory().join("boltq-tests");
        std::fs::create_dir_all(&base).expect("create the directory of test data");
        // Inside of a namespace, processes have other numbers.
        let outside = network::outside();
        static SWEPT: Once = Once::new();
        if outside.is_none() {
            SWEPT.call_once(|| sweep(&base));
        }
        let owner = format!("{}-", outside.unwrap_or_else(std::process::id));
        let root = tempfile::Builder::new()
            .prefix(&owner)
            .tempdir_in(&base)
            .expect("create a directory for a server");
        Self { root }
    }

    /// Everything of this server.
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// What the server calls `storage.data_dir`.
    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Bytes that the files below `data` take on the disk, holes not counted.
    pub fn data_bytes(&self) -> u64 {
        bytes_below(&self.data())
    }
}

impl Default for Directory {
    fn default() -> Self {
        Self::new()
    }
}

/// Removes what processes left behind that were killed: names begin with the process that made them.
fn sweep(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(Ok(owner)) = name.split_once('-').map(|(owner, _)| owner.parse::<u32>()) else {
            continue;
        };
        if !Path::new("/proc").join(owner.to_string()).exists() {
            // Most are no mounts, and what is still in use stays for the next sweep.
            let _ = Command::new("umount")
                .args(["--lazy", "--quiet"])
                .arg(entry.path().join("data"))
                .status();
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// `target/<profile>`, from where this executable lies: `target/<profile>/x` or `target/<profile>/deps/x`.
pub(super) fn build_directory() -> PathBuf {
    let executable = std::env::current_exe().expect("path of this executable");
    let parent = executable.parent().expect("an executable lies in a directory");
    match parent.file_name() {
        Some(name) if name == "deps" => parent.parent().expect("deps lies in a profile's directory").to_owned(),
        _ => parent.to_owned(),
    }
}

fn bytes_below(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            // Compaction deletes files while they are counted.
            Err(_) => 0,
        })
        .sum()
}
