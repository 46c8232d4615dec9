//! The storage cache: one live storage per block.

use graphgrove_device::DevicePtr;
use graphgrove_storage::{Error, Ledger, OldOutput, PlannedOutput, Storage, StorageCache, StorageId, Tensor};

use crate::rig::{BLOCK, Census, Rig, began, floats, no_source, outside, slab, slab_of, slot, step, take};

fn at(number: u64) -> DevicePtr {
    DevicePtr::new(number)
}

#[test]
fn a_block_is_found_by_any_address_in_it_while_it_is_live() {
    let mut slab = slab_of(2);
    let mut tensors = take(&mut slab, 1);
    let mut cache = StorageCache::new();
    let ids: Vec<_> = tensors.iter().map(|tensor| cache.add(tensor.storage()).unwrap().unwrap()).collect();
    assert_eq!(cache.find(at(0x10_0000), BLOCK), Some((ids[0], 0)));
    assert_eq!(cache.find(at(0x10_0210), 8), Some((ids[1], 16)));
    assert_eq!(cache.find(at(0x10_0210), BLOCK), None, "it reaches past the end");
    assert_eq!(cache.find(at(0x10_0210), u64::MAX), None);
    assert_eq!(cache.find(at(0xf_ffff), 1), None);
    assert_eq!(cache.find(at(0x10_0400), 1), None);
    drop(tensors.remove(0));
    assert_eq!(cache.find(at(0x10_0000), 1), None);
    assert_eq!(cache.live().map(|(id, ..)| id).collect::<Vec<_>>(), [ids[1]]);
}

#[test]
fn every_alias_along_a_path_is_the_one_storage() {
    let mut slab = slab_of(1);
    let tensor = take(&mut slab, 1).remove(0);
    let mut cache = StorageCache::new();
    let first = cache.add(tensor.storage()).unwrap();
    let view = tensor.slice(0, 2..4, 1).unwrap();
    drop(tensor);
    assert_eq!(cache.add(view.storage()).unwrap(), first);
    assert_eq!(cache.live().count(), 1);
}

#[test]
fn an_address_that_comes_back_is_a_new_identity() {
    let mut cache = StorageCache::new();
    let census = Census::default();
    let old = Storage::pool_block(at(0x1000), 64, census.owner());
    let old_id = cache.add(&old).unwrap().unwrap();
    drop(old);
    assert_eq!((cache.find(at(0x1000), 64), census.alive()), (None, 0));
    let new = Storage::pool_block(at(0x1000), 64, census.owner());
    let new_id = cache.add(&new).unwrap().unwrap();
    assert_ne!(new_id, old_id);
    assert_eq!(cache.find(at(0x1000), 64), Some((new_id, 0)));
    let mut slab = slab_of(1);
    let first = take(&mut slab, 1).remove(0).storage().id();
    assert_ne!(take(&mut slab, 2)[0].storage().id(), first, "the same slot in another run");
}

#[test]
fn two_live_storages_never_share_a_block() {
    let mut cache = StorageCache::new();
    let holder = Storage::unowned(at(0x1000), 0x100);
    let id = cache.add(&holder).unwrap().unwrap();
    for (base, bytes) in [(0x1000, 0x100), (0xf00, 0x101), (0x10ff, 1), (0x1040, 8), (0x0f00, 0x1000)] {
        let refused = cache.add(&Storage::unowned(at(base), bytes)).unwrap_err();
        assert_eq!(refused, Error::BlockShared { base: at(base), bytes, holder: id });
    }
    for (base, bytes) in [(0xf00, 0x100), (0x1100, 0x10)] {
        let neighbour = Storage::unowned(at(base), bytes);
        assert!(cache.add(&neighbour).is_ok());
    }
    drop(holder);
    let heir = Storage::unowned(at(0x0f80), 0x100);
    assert!(cache.add(&heir).is_ok(), "the holder is gone, and its neighbours with it");
}

#[test]
fn a_dead_block_in_between_hides_no_live_one() {
    let mut cache = StorageCache::new();
    let wide = Storage::unowned(at(0x1000), 0x1000);
    let id = cache.add(&wide).unwrap().unwrap();
    drop(wide);
    let narrow = Storage::unowned(at(0x1800), 0x100);
    cache.add(&narrow).unwrap();
    drop(narrow);
    let low = Storage::unowned(at(0x1000), 0x900);
    let low_id = cache.add(&low).unwrap().unwrap();
    assert_ne!(low_id, id);
    assert_eq!(cache.find(at(0x1800), 0x80), Some((low_id, 0x800)));
    cache.sweep();
    assert_eq!(cache.live().collect::<Vec<_>>(), [(low_id, at(0x1000), 0x900)]);
    cache.clear();
    assert_eq!(cache.live().count(), 0);
}

#[test]
fn what_has_died_is_let_go_of_by_a_sweep() {
    let census = Census::default();
    let ledger = Ledger::keeping(census.owner());
    let mut slab = slab(&ledger, vec![crate::rig::fresh(0)]);
    let tensor = take(&mut slab, 1).remove(0);
    let mut cache = StorageCache::new();
    cache.add(tensor.storage()).unwrap();
    drop((slab, ledger));
    cache.sweep();
    assert_eq!(cache.live().count(), 1);
    drop(tensor);
    assert_eq!((cache.live().count(), census.alive()), (0, 1), "the cache still has what it observes it by");
    cache.sweep();
    assert_eq!(census.alive(), 0);
}

#[test]
fn storages_without_memory_are_not_in_it() {
    let mut cache = StorageCache::new();
    assert_eq!(cache.add(&Storage::empty()), Ok(None));
    assert_eq!(cache.add(&Storage::unowned(at(0), 64)), Ok(None));
    assert_eq!(cache.add(&Storage::unowned(at(64), 0)), Ok(None));
    assert!(Storage::empty().watch().is_none());
    assert!(!Storage::empty().is_same(&Storage::empty()).unwrap());
    assert_eq!(format!("{:?}", Storage::empty()), "Storage(empty)");
}

#[test]
fn what_was_copied_out_is_found_where_the_copy_is() {
    let mut rig = Rig::new();
    let (from, to) = (rig.block(), rig.block());
    rig.write(from, 1);
    let outputs = vec![PlannedOutput::fresh(from, BLOCK, floats(8))];
    let mut slab = slab(&Ledger::new(), outputs);
    let tensor = take(&mut slab, 1).remove(0);
    let mut cache = StorageCache::new();
    cache.add(tensor.storage()).unwrap();
    slab.end_step(&rig.device, &rig.stream, &began(2), |_| OldOutput::CopyOut, |_| Ok((to, Box::new(()))))
        .unwrap();
    assert_eq!(cache.find(from, 1), None);
    let id = cache.add(tensor.storage()).unwrap().unwrap();
    assert!(matches!(id, StorageId::Block(_)));
    assert_eq!(cache.find(to, BLOCK), Some((id, 0)));
    assert_eq!(tensor.storage().slot_value(), Ok(None));
    drop(tensor);
    slab.sweep();
    assert_eq!(cache.find(to, 1), None);
    rig.verdict();
    assert!(!slab.is_live(slot(0)));
}

#[test]
fn a_storage_prints_what_it_is() {
    let text = format!("{:?}", outside(0x1000, 4).storage());
    assert!(text.starts_with("Storage(allocation ") && text.ends_with("(16 bytes at 0x1000))"), "{text}");
    let mut slab = slab_of(1);
    let text = format!("{:?}", take(&mut slab, 1)[0].storage());
    assert_eq!(text, format!("Storage(output 0 of {} in epoch 1, 512 bytes at 0x100000)", slab.id()));
}

#[test]
fn a_block_is_the_same_storage_when_it_has_become_an_output() {
    let block = Storage::pool_block(at(0x9000), BLOCK, Box::new(()));
    let mut cache = StorageCache::new();
    let before = cache.add(&block).unwrap().unwrap();
    let recorded = Tensor::new(block, floats(8), 0).unwrap();
    let mut slab = slab(&Ledger::new(), vec![PlannedOutput::fresh(at(0x9000), BLOCK, floats(8))]);
    let (mut back, _owners) = slab.hand_back_recorded(step(1), &[Some(recorded.clone())], no_source).unwrap();
    let output = back.outputs.take(slot(0)).unwrap();
    let id = output.storage().id().unwrap();
    assert_ne!(Some(before), id);
    assert_eq!(cache.find(at(0x9010), 4).map(|(found, _)| found), id);
    assert_eq!(cache.live().map(|(found, ..)| Some(found)).collect::<Vec<_>>(), [id]);
    assert_eq!((cache.add(output.storage()), cache.add(recorded.storage())), (Ok(id), Ok(id)));
    slab.invalidate(&began(2)).unwrap();
    assert_eq!(cache.find(at(0x9010), 4), None);
}
