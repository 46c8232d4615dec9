//! What the last two handles leave behind that go at the same moment on two threads, while their slab goes.
//!
//! It is the only test of its program: whoever sweeps the list of orphans gives such memory back, and if that were a thread of
//! another test it might do so a moment after this one has looked.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Barrier};
use std::thread;

use graphgrove_device::DevicePtr;
use graphgrove_storage::{Layout, Ledger, PlannedOutput, Slab, Step};

/// A slab with as many outputs of 512 bytes in a region that nobody reads.
fn slab(ledger: &Arc<Ledger>, outputs: u64) -> Slab {
    let fresh = |number| {
        let at = DevicePtr::new(0x10_0000 + 512 * number);
        PlannedOutput::fresh(at, 512, Layout::of::<f32>(&[8]).unwrap())
    };
    Slab::new(ledger, "F", 7, (0..outputs).map(fresh).collect()).unwrap()
}

#[test]
fn handles_that_go_at_home_and_elsewhere_while_the_slab_goes_free_its_memory_once() {
    let rounds = if cfg!(miri) { 1 } else { 300 };
    for _ in 0..rounds {
        let memory = Arc::new(());
        let mut slab_that_goes = slab(&Ledger::keeping(Arc::clone(&memory)), 2);
        let mut back = slab_that_goes.hand_back(Step::new(1), |_, _| None).unwrap();
        let mut tensors: Vec<_> = back.outputs.take_all().flatten().collect();
        drop(back);
        let (elsewhere, at_home) = (tensors.pop().unwrap(), tensors.pop().unwrap());
        let at_once = Barrier::new(3);
        thread::scope(|scope| {
            scope.spawn(|| {
                at_once.wait();
                drop(elsewhere);
            });
            scope.spawn(|| {
                at_once.wait();
                drop(slab_that_goes);
            });
            at_once.wait();
            drop(at_home);
        });
        // Had the last two not seen each other go, this finds what they have left behind.
        let another = slab(&Ledger::new(), 1);
        assert_eq!(Arc::strong_count(&memory), 1);
        drop(another);
    }
}
