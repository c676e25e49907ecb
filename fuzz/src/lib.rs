//! What fuzz targets share.
//!
//! A target takes bytes as they come from a disk or a connection, and checks more than that nothing panics: what is
//! accepted has to be consistent, to work, and to be written and read back as the same. An input that fails is the file,
//! frame or entry itself, ready to become a regression test.

mod allocation;
pub mod cache;
pub mod directory;
pub mod pair;
pub mod plane;
pub mod sealing;
pub mod stream;
