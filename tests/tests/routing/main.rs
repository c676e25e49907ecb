//! Topics and exchanges, through every door, on one node and on three.

mod exchanges;
mod exchanges_cluster;
mod topics;
mod topics_cluster;
mod topics_grpc;
