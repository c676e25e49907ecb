//! Measures the broker against the bare transport of the same shape, in the same minute on the same machine.
//!
//! A figure of a broker alone says as much about the machine as about the broker. So each row runs the same client, with
//! the same bytes, against the broker and against a server that only speaks the transport (`bare_grpc`, `bare_tcp`): same
//! framing, same HTTP/2 windows, an answer of the same size, and nothing in between. Both are child processes. They
//! take turns within a row, and which one comes first changes from run to run, so that a machine that drifts, or a
//! neighbour that wakes up, meets both. Figures are medians over the runs.
//!
//! Load over gRPC on queues comes from `boltq-load`, the generator of `boltq bench`.
//!
//! Rows of a cluster stand beside those of a single node instead.
//!
//! Every broker run has a fresh server on a fresh directory on the build's disk: no run inherits a backlog, a recycled
//! file or a warm cache from the one before.

mod bare_grpc;
mod bare_tcp;
mod calls;
mod clients;
mod cluster;
mod delayed;
mod disk;
mod fanout;
mod load;
mod load_grpc;
mod load_tcp;
mod options;
mod report;
mod rows;
mod size;
mod streams;
mod target;

pub use bare_grpc::serve as serve_bare_grpc;
pub use bare_tcp::serve as serve_bare_tcp;
pub use clients::ClientProgram;
pub use options::{BenchOptions, Output};
pub use rows::run;

/// Payload of every message, in bytes.
const PAYLOAD_BYTES: usize = 256;
const QUEUE: &str = "bench";
