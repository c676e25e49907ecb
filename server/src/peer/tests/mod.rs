//! Nodes of one process that speak over sockets on 127.0.0.1.

mod calls;
mod recovery;
mod refused;
mod speed;
mod support;
mod tls;
mod transfers;
