//! The shared secret of the nodes.

use std::fmt;

/// Fewer could be guessed.
const BYTES_MIN: usize = 16;

/// What the nodes of a cluster prove themselves to each other with, or nothing, which lets in whoever comes.
///
/// Its `Debug` shows only whether there is one, so that it can stand in logged structures.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(Option<Box<str>>);

impl ClusterSecret {
    /// The empty text means that no secret is wanted; one that is too short is none.
    pub(super) fn new(secret: &str) -> Option<Self> {
        match secret.len() {
            0 => Some(Self(None)),
            BYTES_MIN.. => Some(Self(Some(secret.into()))),
            _ => None,
        }
    }

    /// For the proof, and nothing else.
    #[must_use]
    pub fn expose(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.as_ref().map_or("none", |_| "set");
        write!(f, "ClusterSecret({shown})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_or_missing_and_never_shown() {
        let secret = ClusterSecret::new("0123456789abcdef").unwrap();
        assert_eq!(secret.expose(), Some("0123456789abcdef"));
        assert_eq!(format!("{secret:?}"), "ClusterSecret(set)");
        let none = ClusterSecret::new("").unwrap();
        assert_eq!(none.expose(), None);
        assert_eq!(format!("{none:?}"), "ClusterSecret(none)");
        assert_eq!(ClusterSecret::new("0123456789abcde"), None);
    }
}
