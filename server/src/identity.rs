//! Who this node is, across restarts.
//!
//! The id stands in the membership of every group, so it has to stay when host name or address change. It is drawn once
//! and kept in the data directory: whoever has the data is the node.
//!
//! A log belongs to one node: with the id of another one, or a new one, it would vote a second time with what it has promised
//! as somebody else. So the directory of the log says too who writes it, and a start under another id, or under none, is
//! refused. A log that does not say so yet, of an earlier version, is taken as it is, and says so from then on.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use boltq_core::NodeId;

const FILE: &str = "node-id";

/// Why a node does not know who it is.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The log is that of another node.
    #[error(
        "{}: the node id is {:016x}, but the log beside it was written by node {:016x}: restore the file of that node, or start \
         on an empty directory",
        path.display(), id.0, writer.0
    )]
    Another {
        /// The file.
        path: PathBuf,
        /// What it says.
        id: NodeId,
        /// Who wrote the log.
        writer: NodeId,
    },
    /// There is a log, and nothing says whose it is.
    #[error(
        "{}: the node id is missing, but there is a log beside it{}: restore the file, or start on an empty directory",
        path.display(), writer.map_or(String::new(), |id| format!(", written by node {:016x}", id.0))
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// Who wrote the log, if it says so.
        writer: Option<NodeId>,
    },
    /// The file holds something else.
    #[error("{path}: not a node id: 16 hexadecimal digits wanted; restore the file, or start on an empty directory")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// The id that is kept in `data_dir`, if there is one, before the log in `log_dir` is opened.
///
/// # Errors
/// A file is damaged or cannot be read, or the log was written by another node.
pub(crate) fn load(data_dir: &Path, log_dir: &Path) -> Result<Option<NodeId>, IdentityError> {
    let path = data_dir.join(FILE);
    match (read(data_dir)?, read(log_dir)?) {
        (None, writer @ Some(_)) => Err(IdentityError::Missing { path, writer }),
        (Some(id), Some(writer)) if id != writer => Err(IdentityError::Another { path, id, writer }),
        (id, _) => Ok(id),
    }
}

/// The id of this node, now that its log is open: the one that was loaded or, if there is none, a new one. From then on it is
/// kept, and said beside the log. Written after the log was opened for the first time: from then on a directory that has
/// an id and no log has lost it. `is_new` is a log in which nothing was ever written.
///
/// # Errors
/// A file cannot be written, or the log was written under an id that is gone.
pub(crate) fn keep(
    data_dir: &Path,
    log_dir: &Path,
    known: Option<NodeId>,
    is_new: bool,
    new_id: u64,
) -> Result<NodeId, IdentityError> {
    let id = match known {
        Some(id) => id,
        None if is_new => NodeId(new_id.max(1)),
        None => {
            let path = data_dir.join(FILE);
            return Err(IdentityError::Missing { path, writer: None });
        }
    };
    if known.is_none() {
        write(data_dir, id)?;
    }
    if read(log_dir)?.is_none() {
        write(log_dir, id)?;
    }
    Ok(id)
}

/// Whether there was a log in `log_dir`.
///
/// # Errors
/// The file that says so is damaged or cannot be read.
pub(crate) fn was_written(log_dir: &Path) -> Result<bool, IdentityError> {
    Ok(read(log_dir)?.is_some())
}

fn read(dir: &Path) -> Result<Option<NodeId>, IdentityError> {
    let path = dir.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => parse(&text).map(Some).ok_or(IdentityError::Damaged { path }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(IdentityError::Io { path, source }),
    }
}

fn parse(text: &str) -> Option<NodeId> {
    let digits = text.trim_end();
    let valid = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    valid
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
        .map(NodeId)
}

fn write(dir: &Path, id: NodeId) -> Result<(), IdentityError> {
    let path = dir.join(FILE);
    write_whole(dir, &path, id).map_err(|source| IdentityError::Io { path, source })
}

/// Synced before it gets its name, so that no crash leaves half an id.
fn write_whole(dir: &Path, path: &Path, id: NodeId) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let unfinished = dir.join(format!("{FILE}.tmp"));
    let mut file = fs::File::create(&unfinished)?;
    writeln!(file, "{:016x}", id.0)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: NodeId = NodeId(0xABC);

    /// A data directory, and that of the log in it.
    fn directory() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("new/data");
        let log_dir = data_dir.join("queue");
        (dir, data_dir, log_dir)
    }

    #[test]
    fn an_id_is_drawn_once_and_stays() {
        let (_dir, data_dir, log_dir) = directory();
        assert_eq!(load(&data_dir, &log_dir).unwrap(), None);
        assert_eq!(keep(&data_dir, &log_dir, None, true, ID.0).unwrap(), ID);
        assert_eq!(load(&data_dir, &log_dir).unwrap(), Some(ID));
        assert_eq!(keep(&data_dir, &log_dir, Some(ID), false, 7).unwrap(), ID);
        assert_eq!(load(&data_dir, &log_dir).unwrap(), Some(ID));
    }

    #[test]
    fn a_log_without_its_id_is_refused() {
        let (_dir, data_dir, log_dir) = directory();
        keep(&data_dir, &log_dir, None, true, ID.0).unwrap();
        fs::remove_file(data_dir.join(FILE)).unwrap();
        let error = load(&data_dir, &log_dir).unwrap_err();
        assert!(
            error.to_string().contains("written by node 0000000000000abc"),
            "{error}"
        );
        // As it would be with one of a version that did not say so.
        fs::remove_file(log_dir.join(FILE)).unwrap();
        assert_eq!(load(&data_dir, &log_dir).unwrap(), None);
        let error = keep(&data_dir, &log_dir, None, false, 7).unwrap_err();
        assert!(matches!(error, IdentityError::Missing { writer: None, .. }), "{error}");
        assert_eq!(read(&data_dir).unwrap(), None, "nothing was drawn");
    }

    #[test]
    fn a_log_under_the_id_of_another_node_is_refused() {
        let (_dir, data_dir, log_dir) = directory();
        keep(&data_dir, &log_dir, None, true, ID.0).unwrap();
        write(&data_dir, NodeId(7)).unwrap();
        let error = load(&data_dir, &log_dir).unwrap_err();
        assert!(
            matches!(
                error,
                IdentityError::Another {
                    id: NodeId(7),
                    writer: ID,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn a_log_that_does_not_say_whose_it_is_yet_says_so_from_then_on() {
        let (_dir, data_dir, log_dir) = directory();
        write(&data_dir, ID).unwrap();
        assert_eq!(load(&data_dir, &log_dir).unwrap(), Some(ID));
        assert_eq!(keep(&data_dir, &log_dir, Some(ID), false, 7).unwrap(), ID);
        assert_eq!(read(&log_dir).unwrap(), Some(ID));
    }

    #[test]
    fn a_damaged_file_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        for text in ["", "12", "+000000000000001", "zzzzzzzzzzzzzzzz\n"] {
            fs::write(&path, text).unwrap();
            let error = load(dir.path(), &dir.path().join("queue")).unwrap_err();
            assert!(matches!(error, IdentityError::Damaged { .. }), "{text:?}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
