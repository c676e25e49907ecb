//! Topics of the messaging plane: records in order, positions, and what becomes of them when processes end.

mod appends;
mod client;
mod cluster;
mod cursors;
mod reading;
mod restart;
mod retention;
mod tails;
mod topics;
