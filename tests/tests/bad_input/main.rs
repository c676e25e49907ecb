//! Input that no honest client sends, on each door: a documented answer or a closed connection, the server up, memory flat.

mod admin;
mod binary;
mod grpc;
mod handles;
mod refusals;
mod slow_readers;
mod unfinished;
mod watch;
