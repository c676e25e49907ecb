//! Topics and exchanges, through every door, on one node and on three.

mod exchanges;
mod exchanges_cluster;
mod repeated;
mod repeated_cluster;
mod times_to_live;
mod topics;
mod topics_cluster;
mod topics_grpc;
