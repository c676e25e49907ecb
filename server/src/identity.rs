//! Who this node is, across restarts.
//!
//! The id stands in the membership of every group, so it has to stay when host name or address change. It is drawn once
//! and kept in the data directory: whoever has the data is the node.

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
    /// The file holds something else.
    #[error("{path}: not a node id: 16 hexadecimal digits wanted; restore the file, or start on an empty directory")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// The id that is kept in `data_dir`, if there is one.
///
/// # Errors
/// The file is damaged, or cannot be read.
pub(crate) fn load(data_dir: &Path) -> Result<Option<NodeId>, IdentityError> {
    let path = data_dir.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => parse(&text).map(Some).ok_or(IdentityError::Damaged { path }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(IdentityError::Io { path, source }),
    }
}

/// Keeps a new id in `data_dir`. Written after the log was opened for the first time: from then on a directory that has an
/// id and no log has lost it.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn create(data_dir: &Path, new_id: u64) -> Result<NodeId, IdentityError> {
    let path = data_dir.join(FILE);
    let id = NodeId(new_id.max(1));
    write(data_dir, &path, id).map_err(|source| IdentityError::Io { path, source })?;
    Ok(id)
}

fn parse(text: &str) -> Option<NodeId> {
    let digits = text.trim_end();
    let valid = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    valid
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
        .map(NodeId)
}

/// Synced before it gets its name, so that no crash leaves half an id.
fn write(data_dir: &Path, path: &Path, id: NodeId) -> io::Result<()> {
    fs::create_dir_all(data_dir)?;
    let unfinished = data_dir.join(format!("{FILE}.tmp"));
    let mut file = fs::File::create(&unfinished)?;
    writeln!(file, "{:016x}", id.0)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    fs::File::open(data_dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_drawn_once_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("new/data");
        assert_eq!(load(&data_dir).unwrap(), None);
        assert_eq!(create(&data_dir, 0xABC).unwrap(), NodeId(0xABC));
        assert_eq!(load(&data_dir).unwrap(), Some(NodeId(0xABC)));
    }

    #[test]
    fn a_damaged_file_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        for text in ["", "12", "+000000000000001", "zzzzzzzzzzzzzzzz\n"] {
            fs::write(&path, text).unwrap();
            let error = load(dir.path()).unwrap_err();
            assert!(matches!(error, IdentityError::Damaged { .. }), "{text:?}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
