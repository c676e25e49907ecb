//! Tests of the log through its interface, on simulated files where something goes wrong.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]

mod basics;
mod closing;
mod common;
mod compaction;
mod crash;
mod erasing;
mod failing;
mod golden;
mod gone;
mod install;
mod losses;
mod memory;
mod reading;
mod shared;
mod steps;
mod stress;
mod tails;
