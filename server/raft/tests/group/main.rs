//! Groups over real logs: alone, and with others.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod alone;
mod answering;
mod checkpoints;
mod cluster;
mod figures;
mod leases;
mod openraft;
mod quiet;
mod reads;
mod room;
mod support;
