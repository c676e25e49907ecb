//! Patterns of topic exchanges, as a tree of their words.
//!
//! Words are separated by `.`; `*` stands for exactly one word, `#` for any number of them. The empty key is one empty word.
//!
//! A key is matched against all patterns at once: word by word, with the set of nodes that the words so far can lead to.
//! A node is in the set once, however many ways lead to it, so that a match takes at most the number of words times the
//! number of nodes, however many `#` there are.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A tree of patterns. Its depth is bounded by the length of a pattern, see [`super::ROUTING_KEY_BYTES_MAX`].
#[derive(Debug, Default)]
pub(super) struct PatternTree {
    root: Node,
}

#[derive(Debug, Default)]
struct Node {
    words: BTreeMap<Box<str>, Self>,
    any_word: Option<Box<Self>>,
    any_words: Option<Box<Self>>,
    /// The pattern that ends here.
    pattern: Option<Arc<str>>,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.words.is_empty() && self.any_word.is_none() && self.any_words.is_none() && self.pattern.is_none()
    }

    fn child(&mut self, word: &str) -> &mut Self {
        match word {
            "*" => self.any_word.get_or_insert_default(),
            "#" => self.any_words.get_or_insert_default(),
            word => self.words.entry(word.into()).or_default(),
        }
    }

    /// Removes what the words lead to, and what leads to nothing else; returns whether nothing is left here.
    fn remove(&mut self, mut words: std::str::Split<'_, char>) -> bool {
        match words.next() {
            None => self.pattern = None,
            Some("*") => prune(&mut self.any_word, words),
            Some("#") => prune(&mut self.any_words, words),
            Some(word) => {
                if self.words.get_mut(word).is_some_and(|child| child.remove(words)) {
                    self.words.remove(word);
                }
            }
        }
        self.is_empty()
    }
}

fn prune(child: &mut Option<Box<Node>>, words: std::str::Split<'_, char>) {
    if child.as_mut().is_some_and(|child| child.remove(words)) {
        *child = None;
    }
}

/// A node that the words so far can lead to.
#[derive(Clone, Copy)]
struct State<'t> {
    node: &'t Node,
    /// It was reached by a `#`, which takes further words, too.
    takes_more: bool,
}

impl PatternTree {
    pub(super) fn insert(&mut self, pattern: Arc<str>) {
        let mut node = &mut self.root;
        for word in pattern.split('.') {
            node = node.child(word);
        }
        node.pattern = Some(pattern);
    }

    pub(super) fn remove(&mut self, pattern: &str) {
        // The root stays, empty or not.
        let _ = self.root.remove(pattern.split('.'));
    }

    /// Tells the patterns that match, each once.
    pub(super) fn matches<'t>(&'t self, key: &str, mut tell: impl FnMut(&'t str)) {
        let mut states = Vec::new();
        add(&mut states, &self.root, false);
        for word in key.split('.') {
            let mut next = Vec::new();
            for State { node, takes_more } in states {
                if takes_more {
                    add(&mut next, node, true);
                }
                // Words of a key are words, even if they look like `*` or `#`.
                if let Some(child) = node.words.get(word) {
                    add(&mut next, child, false);
                }
                if let Some(child) = &node.any_word {
                    add(&mut next, child, false);
                }
            }
            states = distinct(next);
        }
        for State { node, .. } in states {
            if let Some(pattern) = &node.pattern {
                tell(pattern);
            }
        }
    }
}

/// Adds a node, and what is reached from it by a `#` that stands for no word.
fn add<'t>(states: &mut Vec<State<'t>>, mut node: &'t Node, mut takes_more: bool) {
    loop {
        states.push(State { node, takes_more });
        match &node.any_words {
            Some(next) => (node, takes_more) = (next, true),
            None => return,
        }
    }
}

/// Each node once. A node below a `#` is only ever reached by it, so both of its states are equal.
fn distinct(mut states: Vec<State<'_>>) -> Vec<State<'_>> {
    if states.len() > 1 {
        states.sort_unstable_by_key(|state| std::ptr::from_ref(state.node) as usize);
        states.dedup_by_key(|state| std::ptr::from_ref(state.node) as usize);
    }
    states
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn tree(patterns: &[&str]) -> PatternTree {
        let mut tree = PatternTree::default();
        for pattern in patterns {
            tree.insert((*pattern).into());
        }
        tree
    }

    fn matching<'t>(tree: &'t PatternTree, key: &str) -> Vec<&'t str> {
        let mut found = Vec::new();
        tree.matches(key, |pattern| found.push(pattern));
        found.sort_unstable();
        found
    }

    /// The table of the specification.
    const TABLE: [(&str, &str, bool); 25] = [
        ("#", "", true),
        ("#", "a.b.c", true),
        ("*", "", true),
        ("*", "a.b", false),
        ("", "", true),
        ("", "a", false),
        ("a.*", "a", false),
        ("a.*", "a.", true),
        ("a.*.c", "a.b.c", true),
        ("a.*.c", "a..c", true),
        ("a.*.c", "a.b.b.c", false),
        ("a.b", "A.b", false),
        ("a.#", "a", true),
        ("a.#", "b", false),
        ("#.a", "a", true),
        ("#.a", "b.c.a", true),
        ("a.#.z", "a.z", true),
        ("a.#.z", "a.b.c.z", true),
        ("a.#.z", "a.b.c", false),
        ("#.#", "a", true),
        ("#.*", "", true),
        ("*.#", "a", true),
        ("a*", "ab", false),
        ("a.#.b.#.c", "a.b.b.c", true),
        ("a*", "a*", true),
    ];

    #[test]
    fn every_row_of_the_table_holds() {
        for (pattern, key, wanted) in TABLE {
            let alone = tree(&[pattern]);
            let found = matching(&alone, key);
            assert_eq!(found == [pattern], wanted, "{pattern:?} {key:?}");
        }
        let all = tree(&TABLE.map(|(pattern, ..)| pattern));
        for (pattern, key, wanted) in TABLE {
            assert_eq!(matching(&all, key).contains(&pattern), wanted, "{pattern:?} {key:?}");
        }
    }

    #[test]
    fn stars_and_hashes_of_a_key_are_words() {
        assert!(matching(&tree(&["a.b"]), "a.*").is_empty());
        assert_eq!(matching(&tree(&["*", "#"]), "#").len(), 2);
    }

    #[test]
    fn what_is_removed_leaves_nothing_behind() {
        let mut tree = tree(&["a.b", "a.b.#", "a.*", "a.#.c"]);
        tree.remove("a.b");
        tree.remove("never.there");
        assert_eq!(matching(&tree, "a.b"), ["a.*", "a.b.#"]);
        for pattern in ["a.b.#", "a.*", "a.#.c"] {
            tree.remove(pattern);
        }
        assert!(tree.root.is_empty());
    }

    #[test]
    fn many_hashes_are_no_more_work_than_their_number() {
        // Backtracking would try some 10^40 ways, and not come back.
        let pattern = "#.a.".repeat(60) + "b";
        let key = "a.".repeat(120) + "c";
        let tree = tree(&[&pattern]);
        assert!(matching(&tree, &key).is_empty());
    }

    /// The definition, word by word.
    fn defined(pattern: &[&str], key: &[&str]) -> bool {
        match (pattern.split_first(), key.split_first()) {
            (None, None) => true,
            (Some((&"#", rest)), None) => defined(rest, key),
            (Some((&"#", rest)), Some((_, fewer))) => defined(rest, key) || defined(pattern, fewer),
            (Some((&"*", rest)), Some((_, fewer))) => defined(rest, fewer),
            (Some((word, rest)), Some((same, fewer))) if word == same => defined(rest, fewer),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_they_are_defined(
            patterns in prop::collection::btree_set("([ab*#]?\\.){0,4}[ab*#]?", 1..8),
            gone in prop::collection::btree_set("([ab*#]?\\.){0,4}[ab*#]?", 0..4),
            keys in prop::collection::vec("([ab]?\\.){0,5}[ab]?", 1..8),
        ) {
            let mut tree = PatternTree::default();
            for pattern in patterns.iter().chain(&gone) {
                tree.insert(pattern.as_str().into());
            }
            for pattern in &gone {
                tree.remove(pattern);
            }
            for key in &keys {
                let words: Vec<_> = key.split('.').collect();
                let wanted: Vec<_> = patterns
                    .difference(&gone)
                    .filter(|pattern| defined(&pattern.split('.').collect::<Vec<_>>(), &words))
                    .map(String::as_str)
                    .collect();
                let found = matching(&tree, key);
                prop_assert_eq!(found.len(), found.iter().collect::<BTreeSet<_>>().len());
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
