//! What openraft stores, on [`boltq_log`].

mod log;
mod machine;

pub(crate) use log::LogStore;
pub(crate) use machine::{CheckpointData, MachineStore};

use std::io;

use boltq_core::DecodeError;

fn invalid_data(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
