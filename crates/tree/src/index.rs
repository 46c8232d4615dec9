//! Finding recordings: by identity for a match, by place and function for bounds and reasons.

use crate::decay::DecayingCount;
use crate::{FunctionId, NodeId};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Where a recording can stand: below this node, or at a root.
pub(crate) type Place = Option<NodeId>;

/// The recordings of one function in one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Branch {
    /// In the order in which they were made.
    pub(crate) nodes: Vec<NodeId>,
    /// How often the function was recorded again here.
    pub(crate) rerecordings: DecayingCount,
}

/// Two views of the same recordings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// An (identity -> nodes) pair means: these recordings have that identity. They differ in what has to be
    /// dead.
    by_identity: HashMap<u64, SmallVec<[NodeId; 2]>, BuildHasherDefault<AlreadyHashed>>,
    /// A ((place, function) -> branch) pair means: these recordings of the function stand in that place.
    by_place: HashMap<(Place, FunctionId), Branch>,
}

impl Index {
    pub(crate) fn with_identity(&self, identity: u64) -> &[NodeId] {
        self.by_identity.get(&identity).map_or(&[], SmallVec::as_slice)
    }

    pub(crate) fn branch(&self, place: Place, function: FunctionId) -> Option<&Branch> {
        self.by_place.get(&(place, function))
    }

    pub(crate) fn branch_mut(&mut self, place: Place, function: FunctionId) -> &mut Branch {
        self.by_place.entry((place, function)).or_default()
    }

    pub(crate) fn insert(&mut self, node: NodeId, place: Place, function: FunctionId, identity: u64) {
        self.by_identity.entry(identity).or_default().push(node);
        self.branch_mut(place, function).nodes.push(node);
    }

    pub(crate) fn remove(&mut self, node: NodeId, place: Place, function: FunctionId, identity: u64) {
        if let Some(nodes) = self.by_identity.get_mut(&identity) {
            nodes.retain(|other| *other != node);
            if nodes.is_empty() {
                self.by_identity.remove(&identity);
            }
        }
        if let Some(branch) = self.by_place.get_mut(&(place, function)) {
            branch.nodes.retain(|other| *other != node);
        }
    }

    /// Forgets a place together with its counts, when the node that it stands below is gone.
    pub(crate) fn remove_place(&mut self, place: Place, function: FunctionId) {
        self.by_place.remove(&(place, function));
    }

    /// How many entries both views hold, for tests of leaks.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.by_identity.len(), self.by_place.len())
    }
}

/// Passes a key through that is a hash already.
#[derive(Clone, Copy, Debug, Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;

    #[test]
    fn a_removed_node_is_in_neither_view() {
        let mut map: SlotMap<NodeId, ()> = SlotMap::with_key();
        let (a, b) = (map.insert(()), map.insert(()));
        let f = FunctionId::new(0);
        let mut index = Index::default();
        index.insert(a, None, f, 7);
        index.insert(b, None, f, 7);
        assert_eq!(index.with_identity(7), [a, b]);
        index.remove(a, None, f, 7);
        assert_eq!(
            (index.with_identity(7), index.branch(None, f).map(|b| &*b.nodes)),
            (&[b][..], Some(&[b][..]))
        );
        index.remove(b, None, f, 7);
        assert_eq!((index.with_identity(7), index.sizes()), (&[][..], (0, 1)));
        index.remove_place(None, f);
        assert_eq!(index.sizes(), (0, 0));
    }

    #[test]
    fn a_hash_is_not_hashed_again() {
        let mut hasher = AlreadyHashed::default();
        hasher.write_u64(42);
        assert_eq!(hasher.finish(), 42);
        let mut bytes = AlreadyHashed::default();
        bytes.write(&[1, 2]);
        assert_eq!(bytes.finish(), 0x102);
        let mut ninth = AlreadyHashed::default();
        ninth.write(&[1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(ninth.finish(), 0, "no byte is covered by another");
    }
}
