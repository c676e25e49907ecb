//! Files in PEM.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A file is of no use.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path:?}: {why}")]
pub struct PemError {
    what: &'static str,
    path: PathBuf,
    why: String,
}

/// A file that was read, and what it is for.
pub(crate) struct PemFile<'a> {
    what: &'static str,
    path: &'a Path,
    bytes: Vec<u8>,
}

/// Of a file with certificates or a key. Bundles of all authorities that there are have some hundred KiB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads what is certainly a file and has an end: to open a pipe waits for its other end, and some devices have no end.
fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    if !fs::metadata(path)?.is_file() {
        return Err(refused("it is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(refused(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

impl<'a> PemFile<'a> {
    /// `what` says in errors what the file is for. Blocks.
    pub(crate) fn read(what: &'static str, path: &'a Path) -> Result<Self, PemError> {
        let file = Self {
            what,
            path,
            bytes: Vec::new(),
        };
        let bytes = read_whole(path).map_err(|why| file.error(&why))?;
        Ok(Self { bytes, ..file })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// At least one.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let read = read.map_err(|why| self.error(&why))?;
        if read.is_empty() {
            return Err(self.error(&"no certificate in it"));
        }
        Ok(read)
    }

    /// The first in it.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, PemError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|why| self.error(&why))
    }

    /// The authorities in it, at least one.
    pub(crate) fn roots(&self) -> Result<RootCertStore, PemError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|why| self.error(&why))?;
        }
        Ok(roots)
    }

    /// What is wrong with it.
    pub(crate) fn error(&self, why: &dyn Display) -> PemError {
        PemError {
            what: self.what,
            path: self.path.to_owned(),
            why: why.to_string(),
        }
    }
}
