//! What the end-to-end tests and the benchmark share. Both treat the server as its users do: a process, two ports, and
//! what the specifications of its doors promise. Nothing here depends on the crates of the server.

pub mod bench;
pub mod harness;
pub mod testbed;
