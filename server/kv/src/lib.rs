//! The key-value cache: values under keys, that end at a time or when others need their place.
//!
//! Replicated: every node that applies the same commands has the same cache, byte for byte. So nothing in here decides by a
//! clock or by chance. Time is that of the entry a command stands in; and what is read, which makes a key worth keeping, is
//! told to the cache by a command like everything else ([`command::touch`]).
//!
//! Pure: no I/O, no clock, no threads, no randomness.

mod entries;
mod machine;
mod pattern;
mod snapshot;
#[cfg(test)]
mod tests;

pub mod command;

pub use entries::Entry;
pub use machine::{Cache, Change, IncrementError, Outcome, Totals};
pub use pattern::Pattern;
pub use snapshot::Captured;
