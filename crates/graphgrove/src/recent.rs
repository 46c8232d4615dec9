//! A map that remembers only so many keys: those that were used last.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map of at most so many keys. One more puts the key out that was not used for the longest.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    /// A (key -> value, use) pair.
    values: HashMap<K, (V, u64)>,
    /// A (use -> key) pair means that the key was used then, and not since.
    uses: BTreeMap<u64, K>,
    clock: u64,
    most: usize,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    /// Nothing yet, and never more than `most` keys, but at least one.
    pub(crate) fn remembering(most: usize) -> Self {
        Self { values: HashMap::new(), uses: BTreeMap::new(), clock: 0, most: most.max(1) }
    }

    /// The value of a key, which is used by that.
    pub(crate) fn get(&mut self, key: &K) -> Option<&mut V> {
        let (value, used) = self.values.get_mut(key)?;
        self.clock += 1;
        self.uses.remove(used);
        self.uses.insert(self.clock, *key);
        *used = self.clock;
        Some(value)
    }

    /// Sets the value of a key, which is used by that.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.clock += 1;
        if let Some((_, used)) = self.values.insert(key, (value, self.clock)) {
            self.uses.remove(&used);
        }
        self.uses.insert(self.clock, key);
        if self.values.len() > self.most
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.values.remove(&oldest);
        }
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        debug_assert_eq!(self.values.len(), self.uses.len());
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_was_not_used_for_the_longest_goes_first() {
        let mut recent = Recent::remembering(2);
        recent.insert(1, 'a');
        recent.insert(2, 'b');
        assert_eq!(recent.get(&1), Some(&mut 'a'));
        recent.insert(3, 'c');
        assert_eq!((recent.get(&1).copied(), recent.get(&2).copied()), (Some('a'), None));
        recent.insert(3, 'd');
        recent.insert(3, 'e');
        assert_eq!((recent.get(&3).copied(), recent.len()), (Some('e'), 2));
        assert_eq!(recent.get(&1), Some(&mut 'a'));
    }

    #[test]
    fn one_key_is_always_remembered() {
        let mut recent = Recent::remembering(0);
        recent.insert(1, ());
        recent.insert(2, ());
        assert!(recent.get(&1).is_none() && recent.get(&2).is_some());
    }
}
