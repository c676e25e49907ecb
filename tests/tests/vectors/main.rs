//! The binary protocol as its clients know it: the recorded frames of `tests/vectors/tcp`, which any language can play, and
//! what the public client libraries of the protocol do, in a client that is written from its specification alone.

mod documented;
mod errors;
mod format;
mod leaders;
mod libraries;
mod matching;
mod place;
mod play;
mod recorded;
mod work;
