//! `boltq key …`

use clap::Subcommand;

/// What a client shows, and what `security.keys` of the server has instead of it.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Key {
    /// Make a random key, and print it with its hash
    Generate,
    /// Print the hash of the key on stdin
    Hash,
}
