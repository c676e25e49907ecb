//! Runs the real server and speaks to it through each of its doors.
//!
//! The server is a child process in a directory of its own, on ports that are free now. Whoever owns a [`Server`] can
//! kill it, stop it, and start it again on the same data; when the owner goes, process and directory go too, and if the
//! owner goes because a test failed, the end of the server's log is printed first.

pub mod binary;
mod cluster;
mod directory;
pub mod grpc;
pub mod http;
mod ledger;
pub mod library;
pub mod network;
mod options;
mod ports;
mod process;
mod random;
mod server;
mod small_disk;
pub mod tls;
mod wait;

pub use cluster::{Cluster, ClusterNode};
pub use directory::Directory;
pub use ledger::{Event, Ledger};
pub use options::ServerOptions;
pub use ports::{free_neighbours, free_port};
pub use process::{ProcessStat, Usage};
pub use random::Random;
pub use server::{Server, StartError, cargo_build, cli_binary, server_binary, use_server_binary};
pub use small_disk::SmallDisk;
pub use wait::{eventually, eventually_async, within};
