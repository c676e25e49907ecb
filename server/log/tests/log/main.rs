//! Tests of the log through its interface, on simulated files where something goes wrong.

mod basics;
mod common;
mod compaction;
mod crash;
mod failing;
mod golden;
mod memory;
mod tails;
