//! Topics and exchanges, through every door, on one node and on three.

mod exchanges;
mod exchanges_cluster;
