//! The shared secret of the doors.

use std::fmt;

use subtle::ConstantTimeEq;

/// The key that clients have to show, or none, which opens every door.
///
/// Its `Debug` shows only whether there is one, so that it can stand in logged structures.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Option<Box<[u8]>>);

impl ApiKey {
    /// The empty text means that no key is wanted.
    pub fn new(key: &str) -> Self {
        Self((!key.is_empty()).then(|| key.as_bytes().into()))
    }

    /// Whether clients have to show a key.
    pub fn required(&self) -> bool {
        self.0.is_some()
    }

    /// For asking other nodes, and nothing else.
    pub(crate) fn expose(&self) -> Option<&str> {
        self.0.as_deref().and_then(|key| std::str::from_utf8(key).ok())
    }

    /// Whether `shown` opens the door. Takes the same time wherever the first difference is; only the length of the
    /// key can be told from outside.
    pub fn accepts(&self, shown: &[u8]) -> bool {
        match &self.0 {
            None => true,
            Some(key) => key.as_ref().ct_eq(shown).into(),
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.required() { "ApiKey(set)" } else { "ApiKey(none)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_key_opens_and_it_is_never_shown() {
        let key = ApiKey::new("s3cret");
        assert!(key.required());
        assert!(key.accepts(b"s3cret"));
        for shown in ["", "s3cre", "s3cret ", "S3cret"] {
            assert!(!key.accepts(shown.as_bytes()), "{shown}");
        }
        assert_eq!(format!("{key:?}"), "ApiKey(set)");
    }

    #[test]
    fn without_a_key_everything_opens() {
        let open = ApiKey::new("");
        assert!(!open.required());
        assert!(open.accepts(b""));
        assert!(open.accepts(b"anything"));
    }
}
