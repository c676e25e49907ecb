//! Work that goes on by itself on a leader.

mod timer;

pub use timer::run_timer;
