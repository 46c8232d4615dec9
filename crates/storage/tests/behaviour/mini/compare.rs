//! What must hold after every operation: the engine compared with the model.

use super::*;

impl Mini {
    /// Compares everything that can be seen with the model.
    pub(crate) fn check(&mut self) {
        let known: Vec<_> = self.all_known().map(|known| known.clone()).collect();
        let mut alive = std::collections::HashSet::new();
        for known in &known {
            if let (Origin::Slot { node, slot, epoch }, Fate::Here) = (known.origin, known.fate) {
                alive.insert((node, slot, epoch));
            }
        }
        for (number, node) in self.nodes.iter().enumerate() {
            for of in 0..node.slab.outputs().len() as u32 {
                let expected = alive.contains(&(number, of, node.slab.epoch().get()));
                assert_eq!(node.slab.is_live(slot(of)), expected, "node {number} slot {of}");
                assert_eq!(node.slab.holders(slot(of)).is_none(), !expected);
            }
            assert!(self.path.contains(&number) || !node.slab.any_live());
        }
        let held = known.iter().any(|known| matches!(known.origin, Origin::Slot { .. }));
        assert_eq!(self.ledger.all_dead(), !held);
        self.check_values();
        self.check_blocks();
    }

    fn check_values(&self) {
        self.rig.device.synchronize().unwrap();
        for (tensor, known) in &self.tensors {
            let address = tensor.address();
            if known.fate == Fate::Stale && known.origin != Origin::Empty {
                assert!(matches!(address, Err(Error::Stale(_))), "{tensor:?} {:?}", known.origin);
                continue;
            }
            assert_eq!(tensor.shape(), [known.bytes]);
            if known.bytes > 0 {
                let mut read = vec![0; known.bytes as usize];
                self.rig.device.read(address.unwrap(), &mut read).unwrap();
                assert_eq!(read, pattern(known.value, known.offset, known.bytes), "{:?}", known.origin);
            }
        }
        let readable = |known: &Known| known.fate != Fate::Stale && known.bytes > 0;
        for pair in self.tensors.windows(2) {
            let [(a, known_a), (b, known_b)] = pair else { continue };
            if readable(known_a) && readable(known_b) && known_a.origin != Origin::Empty {
                // Every storage of the model has a value of its own, so equal values mean equal storages.
                let same = known_a.origin == known_b.origin && known_a.value == known_b.value;
                assert_eq!(a.shares_storage(b), Ok(same));
            }
        }
    }

    /// Two live storages never share a block, and each is found by its address.
    fn check_blocks(&self) {
        let mut cache = StorageCache::new();
        let mut storages = 0;
        let mut seen = std::collections::HashSet::new();
        for (tensor, known) in &self.tensors {
            if known.fate != Fate::Stale && known.bytes > 0 {
                let id = cache.add(tensor.storage()).unwrap().unwrap();
                assert_eq!(cache.find(tensor.address().unwrap(), known.bytes), Some((id, known.offset)));
                storages += usize::from(seen.insert(id));
            }
        }
        assert_eq!(cache.live().count(), storages);
        let mut live: Vec<_> = live_storages(self.path.iter().map(|&node| &self.nodes[node].slab))
            .map(|live| live.base)
            .collect();
        let count = live.len();
        live.sort_unstable();
        live.dedup();
        assert_eq!(live.len(), count, "a checkpoint would name a block twice");
    }
}
