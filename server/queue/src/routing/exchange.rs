//! One exchange and its bindings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::command::ExchangeKind;
use super::pattern::PatternTree;
use super::rule::HeaderRule;
use crate::place::QueueId;

/// An exchange: how it chooses, and the queues it chooses from.
///
/// A binding is a key, a queue and, for a headers exchange, a rule; each is there once. Bindings lie in the order of keys, so
/// that a direct exchange finds its own, and the keys of a topic exchange are in a tree besides.
#[derive(Debug)]
pub struct Exchange {
    kind: ExchangeKind,
    durable: bool,
    alternate: Option<Arc<str>>,
    bindings: BTreeMap<Arc<str>, BTreeMap<QueueId, BTreeSet<HeaderRule>>>,
    count: usize,
    patterns: PatternTree,
}

impl Exchange {
    pub(super) fn new(kind: ExchangeKind, durable: bool, alternate: Option<Arc<str>>) -> Self {
        Self {
            kind,
            durable,
            alternate,
            bindings: BTreeMap::new(),
            count: 0,
            patterns: PatternTree::default(),
        }
    }

    /// How it chooses.
    #[must_use]
    pub fn kind(&self) -> ExchangeKind {
        self.kind
    }

    /// What its declaration said. All exchanges are part of the replicated state, and survive what that survives.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// The exchange that gets what matches no binding.
    #[must_use]
    pub fn alternate(&self) -> Option<&str> {
        self.alternate.as_deref()
    }

    /// Number of bindings.
    #[must_use]
    pub fn binding_count(&self) -> usize {
        self.count
    }

    /// The bindings, in the order of their keys.
    pub fn bindings(&self) -> impl Iterator<Item = (&str, QueueId, &HeaderRule)> {
        self.bindings.iter().flat_map(|(key, queues)| {
            queues
                .iter()
                .flat_map(|(queue, rules)| rules.iter().map(|rule| (&**key, *queue, rule)))
        })
    }

    /// Adds a binding; false if it was there. A rule means something to a headers exchange only.
    pub(super) fn bind(&mut self, key: &str, queue: QueueId, rule: HeaderRule) -> bool {
        let rule = match self.kind {
            ExchangeKind::Headers => rule,
            _ => HeaderRule::default(),
        };
        if !self.bindings.contains_key(key) {
            let key: Arc<str> = key.into();
            if self.kind == ExchangeKind::Topic {
                self.patterns.insert(Arc::clone(&key));
            }
            self.bindings.insert(key, BTreeMap::new());
        }
        let queues = self.bindings.get_mut(key);
        let new = queues.is_some_and(|queues| queues.entry(queue).or_default().insert(rule));
        self.count += usize::from(new);
        new
    }

    /// Removes all bindings with this key and queue, and returns how many there were.
    pub(super) fn unbind(&mut self, key: &str, queue: QueueId) -> usize {
        let Some(queues) = self.bindings.get_mut(key) else {
            return 0;
        };
        let removed = queues.remove(&queue).map_or(0, |rules| rules.len());
        if queues.is_empty() {
            self.bindings.remove(key);
            self.patterns.remove(key);
        }
        self.count -= removed;
        removed
    }

    /// Removes all bindings with this queue, at the cost of the keys that there are.
    pub(super) fn unbind_queue(&mut self, queue: QueueId) {
        let of_queue = self.bindings.iter().filter(|(_, queues)| queues.contains_key(&queue));
        let keys: Vec<_> = of_queue.map(|(key, _)| Arc::clone(key)).collect();
        for key in keys {
            self.unbind(&key, queue);
        }
    }

    /// Adds the queues that a message goes to. `headers` are in the order of their keys.
    pub(super) fn choose(&self, key: &str, headers: &[(&str, &str)], to: &mut BTreeSet<QueueId>) {
        let mut add = |key: &str| {
            if let Some(queues) = self.bindings.get(key) {
                to.extend(queues.keys());
            }
        };
        match self.kind {
            ExchangeKind::Direct => add(key),
            ExchangeKind::Fanout => to.extend(self.bindings.values().flat_map(BTreeMap::keys)),
            ExchangeKind::Topic => self.patterns.matches(key, add),
            ExchangeKind::Headers => {
                let matching = self.bindings().filter(|(_, _, rule)| rule.matches(headers));
                to.extend(matching.map(|(_, queue, _)| queue));
            }
        }
    }
}
