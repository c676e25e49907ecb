//! The binary protocol: a code byte, a length, a JSON object; replies strictly in the order of the requests.
//!
//! The cost of this door is system calls and wake-ups, not JSON. So a connection reads as much as there is, answers
//! all whole frames in it, gathering neighbours of one kind into one call of the service (`run`), and writes all
//! replies at once. A lone request is a batch of one and waits for nothing.
//!
//! Messages of topics are pushed between replies (`subscriptions`).
//!
//! Always true: a request gives exactly one reply, and no reply overtakes another. A reply is never longer than a frame
//! may be. What a connection buffers is bounded by one frame of input and `OUT_BYTES_MAX` plus one frame of output; an
//! idle one holds no buffer at all.

mod bodies;
mod command;
mod connection;
mod door;
mod forward;
mod frame;
mod input;
mod members;
mod queued;
mod reply;
mod request;
mod rights;
mod routed;
mod run;
mod subscriptions;

pub use door::Door;
pub use input::Input;
