//! One rule for the names of queues, whatever door they come through.

use crate::limits::NAME_BYTES_MAX;

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name has no bytes.
    #[error("name is empty; give 1 to {NAME_BYTES_MAX} bytes")]
    Empty,
    /// The name is over the limit.
    #[error("name has {bytes} bytes; at most {NAME_BYTES_MAX} are allowed")]
    TooLong {
        /// Length of the name.
        bytes: usize,
    },
    /// The name holds a control character.
    #[error("name has a control character (U+{code:04X}) at byte {at}")]
    Control {
        /// The character.
        code: u32,
        /// Where it starts.
        at: usize,
    },
}

/// Accepts 1-200 bytes of UTF-8 without control characters. Names are never used as paths, so `..` and `/` are fine.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    match name.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, c)) => Err(NameError::Control { code: u32::from(c), at }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_and_names_that_look_like_paths_are_accepted() {
        for name in [
            "jobs",
            "a.b.c",
            "../x",
            "/etc/passwd",
            "größe",
            "日本",
            " ",
            &"x".repeat(200),
        ] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn empty_long_and_control_names_are_refused() {
        assert_eq!(check_name(""), Err(NameError::Empty));
        assert_eq!(check_name(&"x".repeat(201)), Err(NameError::TooLong { bytes: 201 }));
        assert_eq!(check_name("a\0b"), Err(NameError::Control { code: 0, at: 1 }));
        assert_eq!(check_name("é\u{85}"), Err(NameError::Control { code: 0x85, at: 2 }));
    }
}
