//! What clients speak to. No business rules in here: a door decodes, authenticates, limits, and calls the service.

pub mod grpc;
pub mod http;
mod json;
pub mod port;
mod statistics;
pub mod tcp;
