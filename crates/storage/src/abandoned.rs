//! What a failed call has made and somebody still has.

use std::sync::Arc;

use crate::stale::{Cause, Event};
use crate::{DType, Layout, Ledger, PlannedOutput, Slab, Step, Storage, Tensor, Watch};

/// Makes every handle stale of blocks that a call was [given](Storage::pool_block) which has failed: the pool gives their memory to others.
///
/// A block that has become an output, and one that nobody has any more, is left alone; so is one whose address somebody has
/// [pinned](crate::Pinned). `producer` and `step` are for the error that whoever uses such a handle is told.
pub fn abandon(made: &[Watch], producer: &Arc<str>, step: Step) {
    for storage in made.iter().filter_map(Watch::unadopted) {
        // An output of something that is over at once is stale like any other. What refuses is told to nobody: it has no size that
        // memory can have.
        let _ = end(storage, producer, step);
    }
}

fn end(storage: Storage, producer: &Arc<str>, step: Step) -> Result<(), crate::Error> {
    let layout = Layout::contiguous(DType::U8, &[storage.bytes()?])?;
    let planned = PlannedOutput::fresh(storage.base()?, storage.bytes()?, layout.clone());
    let tensor = Tensor::new(storage, layout, 0)?;
    let mut slab = Slab::new(&Ledger::new(), Arc::clone(producer), 0, vec![planned])?;
    let (back, owners) = slab.hand_back_recorded(step, &[Some(tensor)], |_, _| None)?;
    drop(back);
    slab.invalidate(&Cause { event: Event::CallFailed, step, by: None })?;
    drop(owners);
    Ok(())
}
