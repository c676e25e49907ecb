//! What clients speak to. No business rules in here: a door decodes, authenticates, limits, and calls the service.

mod body;
mod cluster_status;
mod exchanges;
pub mod grpc;
pub mod http;
pub mod intake;
mod json;
pub mod port;
mod pump;
mod push;
mod requests;
mod statistics;
pub mod tcp;
mod traced;
