//! Parameter sets that were seen: their addresses shared between recordings, and their fingerprints.

use crate::call::Params;
use crate::{Address, ParamIndex, ParamSetId, ParamVersion, identity};
use std::collections::HashMap;
use std::sync::Arc;

/// How many sets are remembered. Forgetting one costs time at its next use, nothing else.
const REMEMBERED: usize = 1024;

#[derive(Clone, Debug)]
struct Seen {
    version: ParamVersion,
    addresses: Arc<[Address]>,
    fingerprint: u64,
}

/// A (set -> seen) pair means: at this version the set had these addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParamSets(HashMap<ParamSetId, Seen>);

impl ParamSets {
    /// The fingerprint of the parameters that are not staged.
    pub(crate) fn fingerprint(&self, params: &Params<'_>, staged: &[ParamIndex]) -> u64 {
        match self.0.get(&params.set) {
            Some(seen) if seen.version == params.version && staged.is_empty() => seen.fingerprint,
            _ => identity::of_params(params, staged),
        }
    }

    /// The addresses, shared with other recordings of the same set where they are the same.
    pub(crate) fn addresses(&self, params: &Params<'_>) -> Arc<[Address]> {
        match self.0.get(&params.set) {
            Some(seen) if *seen.addresses == *params.addresses => Arc::clone(&seen.addresses),
            _ => params.addresses.into(),
        }
    }

    /// Remembers that a set, at this version, has these addresses.
    pub(crate) fn remember(&mut self, set: ParamSetId, version: ParamVersion, addresses: &Arc<[Address]>) {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&set) {
            self.0.clear();
        }
        let fingerprint = identity::of_params(&Params { set, version, addresses }, &[]);
        self.0.insert(set, Seen { version, addresses: Arc::clone(addresses), fingerprint });
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(set: u64, version: u64, addresses: &[Address]) -> Params<'_> {
        Params { set: ParamSetId::new(set), version: ParamVersion::new(version), addresses }
    }

    #[test]
    fn an_unchanged_version_is_taken_at_its_word_and_a_new_one_is_read() {
        let (old, new) = ([Address::new(1)], [Address::new(2)]);
        let mut sets = ParamSets::default();
        let first = params(5, 1, &old);
        sets.remember(first.set, first.version, &sets.addresses(&first));
        let print = sets.fingerprint(&first, &[]);
        assert_eq!(print, identity::of_params(&first, &[]));
        assert_eq!(sets.fingerprint(&params(5, 1, &new), &[]), print);
        assert_ne!(sets.fingerprint(&params(5, 2, &new), &[]), print);
        assert_ne!(sets.fingerprint(&params(6, 1, &new), &[]), print);
        assert_ne!(sets.fingerprint(&first, &[ParamIndex::new(0)]), print);
    }

    #[test]
    fn equal_addresses_are_shared_and_others_are_not() {
        let (old, new) = ([Address::new(1)], [Address::new(2)]);
        let mut sets = ParamSets::default();
        let kept = sets.addresses(&params(5, 1, &old));
        sets.remember(ParamSetId::new(5), ParamVersion::new(1), &kept);
        assert!(Arc::ptr_eq(&kept, &sets.addresses(&params(5, 9, &old))));
        assert_eq!(*sets.addresses(&params(5, 9, &new)), new);
        sets.clear();
        assert!(!Arc::ptr_eq(&kept, &sets.addresses(&params(5, 9, &old))));
    }

    #[test]
    fn only_so_many_sets_are_remembered() {
        let addresses: Arc<[Address]> = Arc::from([Address::new(1)]);
        let mut sets = ParamSets::default();
        let remember = |sets: &mut ParamSets, set: u64| {
            sets.remember(ParamSetId::new(set), ParamVersion::new(0), &addresses);
        };
        (0..1024).for_each(|set| remember(&mut sets, set));
        remember(&mut sets, 7);
        assert_eq!(sets.0.len(), 1024);
        remember(&mut sets, 2000);
        assert_eq!(sets.0.len(), 1);
    }
}
