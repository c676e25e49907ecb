//! Several real processes that are one cluster: nodes are killed, stopped, paused, wiped, added and removed.
//!
//! What the network can do to them is the business of the simulator; here the kernel, the file system and the sockets are
//! real.

mod ack_levels;
mod addresses;
mod cable;
mod cache;
mod departed;
mod doors;
mod failover;
mod full_disk;
mod groups;
mod load;
mod membership;
mod operator;
mod passed_on;
mod queue_settings;
mod reads;
mod repeated;
mod snapshots;
mod tcp_forward;
mod times;
