//! Work that goes on by itself on a leader.

mod timer;

pub(crate) use timer::run_timer;
