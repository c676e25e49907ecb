//! For simulations: a [`Process`] for each node, in which the tasks of its groups run.
//!
//! Many nodes then share a thread and a runtime, and still each of them can be stopped as the system stops a process
//! ([`Process::pause`]: no task runs, time goes on, and then everything that has become due happens at once), or killed
//! between any two steps of its tasks. Chance, which openraft wants for its election timeouts, comes from a seed, and what
//! waits for the device is done at once instead of on another thread, so that equal seeds make equal runs.
//!
//! Only with the feature `sim`, and then only for what [`Process::run`] was asked to run.

mod broken;
mod process;
pub(crate) mod runtime;
mod watch;

pub use process::{Break, Process, Run};

pub(crate) use broken::KeptTail;
pub(crate) use process::is_simulated;
