//! What openraft stores, on [`boltq_log`].

#[cfg(test)]
mod conformance;
mod log;
mod machine;

pub(crate) use log::LogStore;
pub(crate) use machine::MachineStore;

use std::io;

use boltq_core::DecodeError;

fn invalid_data(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
