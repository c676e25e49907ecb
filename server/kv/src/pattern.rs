//! Which keys a list names.

/// A pattern. A `*` means something at the start and at the end only; everything else stands for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern<'a> {
    /// `*`, `**` or nothing: every key.
    All,
    /// `p*`: keys that start with it.
    Prefix(&'a str),
    /// `*s`: keys that end with it.
    Suffix(&'a str),
    /// `*m*`: keys that have it in them.
    Infix(&'a str),
    /// Anything else: that key.
    Exact(&'a str),
}

impl<'a> Pattern<'a> {
    /// Reads a pattern; there is none that is wrong.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        match text {
            "" | "*" | "**" => return Self::All,
            _ => {}
        }
        let start = text.strip_prefix('*');
        match (
            start,
            text.strip_suffix('*'),
            start.and_then(|rest| rest.strip_suffix('*')),
        ) {
            (_, _, Some(infix)) => Self::Infix(infix),
            (Some(suffix), _, None) => Self::Suffix(suffix),
            (None, Some(prefix), None) => Self::Prefix(prefix),
            (None, None, None) => Self::Exact(text),
        }
    }

    /// Whether it names a key.
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Prefix(prefix) => key.starts_with(prefix),
            Self::Suffix(suffix) => key.ends_with(suffix),
            Self::Infix(infix) => key.contains(infix),
            Self::Exact(exact) => key == *exact,
        }
    }

    /// In the order of keys, no key before this one matches …
    pub(crate) fn first(&self) -> &'a str {
        match self {
            Self::Prefix(prefix) => prefix,
            Self::Exact(exact) => exact,
            Self::All | Self::Suffix(_) | Self::Infix(_) => "",
        }
    }

    /// … and after one for which this is so, none does.
    pub(crate) fn is_past(&self, key: &str) -> bool {
        match self {
            Self::Prefix(prefix) => key > *prefix && !key.starts_with(prefix),
            Self::Exact(exact) => key > *exact,
            Self::All | Self::Suffix(_) | Self::Infix(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_at_the_ends_stand_for_anything_and_the_rest_for_itself() {
        for (pattern, matching, others) in [
            ("", vec!["", "a", "*"], vec![]),
            ("*", vec!["", "a"], vec![]),
            ("**", vec!["", "a"], vec![]),
            ("a*", vec!["a", "ab", "a*"], vec!["", "ba", "A"]),
            ("*a", vec!["a", "ba"], vec!["", "ab"]),
            ("*a*", vec!["a", "bac"], vec!["", "b"]),
            ("a*b", vec!["a*b"], vec!["ab", "axb"]),
            ("***", vec!["*", "a*b"], vec!["", "ab"]),
            ("a?[b]", vec!["a?[b]"], vec!["axb", "a?b"]),
        ] {
            let parsed = Pattern::parse(pattern);
            assert!(
                matching.iter().all(|key| parsed.matches(key)),
                "{pattern}: {matching:?}"
            );
            assert!(!others.iter().any(|key| parsed.matches(key)), "{pattern}: {others:?}");
        }
    }
}
