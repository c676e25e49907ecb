//! Who is let in, and who can listen.

mod command_line;
mod keys;
mod reload;
mod roles;
mod throttle;
mod tls;
mod tls_cluster;
mod unknown;
