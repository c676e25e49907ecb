//! A small file system, to be filled.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system in memory. Unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts one of so many MiB on `path`, which is made if it is not there. `None` where mounting is not allowed.
    ///
    /// # Panics
    /// When the directory cannot be made.
    pub fn mount(path: &Path, mib: usize) -> Option<Self> {
        std::fs::create_dir_all(path).expect("create the directory of a disk");
        let size = format!("size={mib}m");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(path)
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self { path: path.to_owned() }),
            Ok(output) => {
                println!(
                    "skipped: cannot mount a small disk: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                None
            }
            Err(error) => {
                println!("skipped: cannot mount a small disk: {error}");
                None
            }
        }
    }

    /// Takes all the room that there is.
    ///
    /// # Panics
    /// When no file can be made.
    pub fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).expect("create a file that fills the disk");
        let block = vec![1; 4096];
        while file.write_all(&block).is_ok() {}
    }

    /// Gives back what [`SmallDisk::fill`] took.
    ///
    /// # Panics
    /// When the file cannot be removed.
    pub fn make_room(&self) {
        std::fs::remove_file(self.filler()).expect("remove the file that fills the disk");
    }

    fn filler(&self) -> PathBuf {
        self.path.join("somebody-elses-file")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.path).status();
        println!("unmounted: {unmounted:?}");
    }
}
