//! The rule of a binding to a headers exchange.

use std::cmp::Ordering;

/// Which headers a message has to have. No pairs: any message.
///
/// Kept in one form (pairs in order of their keys, a key once), so that equal rules are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeaderRule {
    all: bool,
    pairs: Vec<(Box<str>, Box<str>)>,
}

impl HeaderRule {
    /// `all`: every pair has to be there, with exactly this value; else one of them. Of a key given twice the last counts.
    #[must_use]
    pub fn new<'p>(all: bool, pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Self {
        let mut pairs: Vec<(Box<str>, Box<str>)> = pairs
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        // The sort is stable, and of equal keys `dedup_by` keeps the first.
        pairs.reverse();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, kept| later.0 == kept.0);
        Self {
            // With nothing to match, there is no difference.
            all: all && !pairs.is_empty(),
            pairs,
        }
    }

    /// Whether every pair has to be there.
    #[must_use]
    pub fn all(&self) -> bool {
        self.all
    }

    /// Keys and values, in the order of the keys.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether a message with these headers, which are in the order of their keys, matches.
    pub(crate) fn matches(&self, headers: &[(&str, &str)]) -> bool {
        let is_there = |(key, value): &(Box<str>, Box<str>)| {
            let at = headers.binary_search_by(|(there, _)| -> Ordering { (**there).cmp(&**key) });
            at.is_ok_and(|at| headers[at].1 == &**value)
        };
        match (self.pairs.is_empty(), self.all) {
            (true, _) => true,
            (false, true) => self.pairs.iter().all(is_there),
            (false, false) => self.pairs.iter().any(is_there),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: [(&str, &str); 3] = [("a", "1"), ("b", ""), ("c", "3")];

    #[test]
    fn all_pairs_or_one_of_them_have_to_be_there() {
        for (all, pairs, wanted) in [
            (true, &[][..], true),
            (false, &[], true),
            (true, &[("a", "1"), ("c", "3")], true),
            (true, &[("a", "1"), ("c", "4")], false),
            (true, &[("a", "1"), ("d", "4")], false),
            (false, &[("a", "2"), ("c", "3")], true),
            (false, &[("a", "2"), ("d", "3")], false),
        ] {
            let rule = HeaderRule::new(all, pairs.iter().copied());
            assert_eq!(rule.matches(&MESSAGE), wanted, "{all} {pairs:?}");
        }
    }

    #[test]
    fn an_empty_value_is_a_value_and_not_the_lack_of_one() {
        assert!(HeaderRule::new(true, [("b", "")]).matches(&MESSAGE));
        assert!(!HeaderRule::new(true, [("d", "")]).matches(&MESSAGE));
        assert!(!HeaderRule::new(false, [("d", "")]).matches(&MESSAGE));
    }

    #[test]
    fn values_are_compared_exactly() {
        assert!(!HeaderRule::new(true, [("a", "1 ")]).matches(&MESSAGE));
        assert!(!HeaderRule::new(true, [("A", "1")]).matches(&MESSAGE));
    }

    #[test]
    fn rules_that_mean_the_same_are_the_same() {
        let rule = HeaderRule::new(true, [("b", "2"), ("a", "0"), ("a", "1")]);
        assert_eq!(rule, HeaderRule::new(true, [("a", "1"), ("b", "2")]));
        assert_ne!(rule, HeaderRule::new(false, [("a", "1"), ("b", "2")]));
        assert_eq!(HeaderRule::new(true, []), HeaderRule::new(false, []));
    }
}
