//! What clients may make this node hold: the bytes of requests that are not whole or not answered yet.
//!
//! Anybody can announce 4 MiB, send all of it but the last byte, and do so on a thousand streams. So what is held for a
//! request is counted, against a budget of its connection and against one of all connections, and given back when the
//! request is answered, or, on a stream of messages, when the next message is asked for. Who asks for more than there
//! is gets an error; nobody waits, because what is awaited might be an attacker's.
//!
//! Counted are: 4 KiB and the headers of each HTTP request; its body, as it arrives; the read buffer of a connection of
//! the binary protocol, except for its first 32 KiB. What is announced costs nothing until it comes. Besides, HTTP/2
//! lets a client send a window full of bytes that nobody reads; windows come out of a pool of the same size, see
//! `window`.
//!
//! Budgets alone would leave the place to whoever fills it first and stays. So a message has to make progress, see
//! `watch`.
//!
//! What is held for answers that nobody reads has budgets of the same sizes, see `answers`.

mod account;
mod answers;
mod body;
mod budget;
mod framing;
mod http;
mod unread;
mod watch;
mod window;

pub(super) use account::Account;
pub(super) use answers::{Hold, Reader, StreamRoom};
pub(super) use body::MessageLayer;
pub use budget::Intake;
#[cfg(test)]
pub(super) use budget::tests::intake as intake_of;
pub(super) use budget::{Connection, Refusal};
pub(super) use http::{Bodies, serve_request};
pub(super) use watch::Progress;
