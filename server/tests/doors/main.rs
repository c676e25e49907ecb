//! The doors of a whole node in this process, over real sockets. What needs a process of its own (kill, restart, full
//! disk) is tested from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

mod admin_port;
mod authentication;
mod binary_protocol;
mod harness;
mod messaging_port;
mod work_queues;
