//! Results by scope and key, each until its time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use boltq_core::Millis;

/// What is answered when a publish is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept<R> {
    pub(super) result: R,
    /// When it is forgotten.
    pub(super) until: Millis,
}

/// The results of publishes to one kind of destination, of which `S` is one and `R` a result.
#[derive(Debug)]
pub(crate) struct Results<S, R> {
    kept: BTreeMap<S, BTreeMap<Arc<str>, Kept<R>>>,
    /// The same keys by the end of their time.
    ends: BTreeSet<(Millis, S, Arc<str>)>,
}

impl<S, R> Default for Results<S, R> {
    fn default() -> Self {
        Self {
            kept: BTreeMap::new(),
            ends: BTreeSet::new(),
        }
    }
}

impl<S: Ord + Clone, R: Copy> Results<S, R> {
    /// Those included whose time is over.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// When the first of them is forgotten.
    pub(super) fn first_end(&self) -> Option<Millis> {
        self.ends.first().map(|(until, ..)| *until)
    }

    pub(crate) fn find(&self, scope: &S, key: &str, now: Millis) -> Option<R> {
        let kept = self.kept.get(scope)?.get(key)?;
        (kept.until > now).then_some(kept.result)
    }

    /// Keeps a result until then. One with the same key is forgotten.
    pub(crate) fn keep(&mut self, scope: S, key: &str, result: R, until: Millis) {
        let key: Arc<str> = key.into();
        let keys = self.kept.entry(scope.clone()).or_default();
        if let Some(before) = keys.insert(Arc::clone(&key), Kept { result, until }) {
            self.ends.remove(&(before.until, scope.clone(), Arc::clone(&key)));
        }
        self.ends.insert((until, scope, key));
    }

    pub(super) fn forget_first(&mut self) {
        let Some((_, scope, key)) = self.ends.pop_first() else {
            return;
        };
        if let Some(keys) = self.kept.get_mut(&scope) {
            keys.remove(&key);
            if keys.is_empty() {
                self.kept.remove(&scope);
            }
        }
    }

    /// Forgets all keys of a scope.
    pub(crate) fn forget_scope(&mut self, scope: &S) {
        for (key, kept) in self.kept.remove(scope).unwrap_or_default() {
            self.ends.remove(&(kept.until, scope.clone(), key));
        }
    }

    /// Scopes that have keys, from this one on in their order.
    pub(super) fn scopes_from(&self, first: &S) -> impl Iterator<Item = &S> {
        self.kept.range(first..).map(|(scope, _)| scope)
    }

    /// All of them, in the order of scope and key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&S, &str, &Kept<R>)> {
        let scopes = self.kept.iter();
        scopes.flat_map(|(scope, keys)| keys.iter().map(move |(key, kept)| (scope, &**key, kept)))
    }
}
