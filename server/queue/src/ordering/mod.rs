//! Messages with an ordering key: those of a key are delivered in the order of publishing and one at a time, and other
//! keys go on meanwhile.
//!
//! They have a stream of their own in their queue. The [`machine`](crate::Machine) knows the key of each that is not done
//! ([`Keys`]), which has to survive everything. Which key is free is the leader's business ([`Keyed`]): it follows from what is
//! not done, in any order of events. A message holds its key as long as it is the oldest of the key that is not done: leased or
//! not, also while it rests after a failure. So whatever finishes a message, be it an acknowledgement, an expiry, a purge or its
//! way to the dead letters, frees the key, and nothing else does.

mod dispatch;
mod keyed;
mod keys;

#[cfg(test)]
pub(crate) use keyed::WAITING_MAX;
pub(crate) use keyed::{Keyed, LOOKS_MAX, Source};
pub(crate) use keys::{Keys, check_all, is_empty, read_section, write_section};
