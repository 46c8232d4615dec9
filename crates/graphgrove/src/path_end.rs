//! The end of a path on which something is live: what becomes of the old outputs.

use std::collections::HashMap;

use graphgrove_device::{Device, StreamHandle};
use graphgrove_pool::pool::{Owner, Pool, Request as Ask};
use graphgrove_storage::{
    Cause, Error as StorageError, Event, OldOutput, Slab, SlotIndex, SlotValue, Step, Storage, Tensor,
};
use graphgrove_tree::{Fate, NodeId, PathEnd};

use crate::grove::{Grove, Request};
use crate::memory::{Lease, plain};
use crate::{Arg, Result};

impl<D: Device> Grove<D> {
    /// Does to old outputs what the tree has decided, before anything is written where they were.
    ///
    /// Inputs of the call that are among them are read first: those that are not copied out anyway are copied for this call
    /// alone.
    ///
    /// An error leaves the old outputs as they were. If the call fails later than here, they have ended without it, and the step is still to
    /// begin: the function has to see them gone while it runs, as it will when it is replayed, and a warm-up's work may have been written
    /// over them by the time that it fails.
    pub(crate) fn end_path(
        &mut self,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        end: &PathEnd,
    ) -> Result<()> {
        self.replayer.enter(&self.stream)?;
        self.bridge(request.stream, &self.stream.clone())?;
        self.carry(args, end)?;
        let step = Step::new(end.step.get());
        let by = Some(request.data.name.clone());
        let cause = Cause { event: Event::StepBegan, step, by };
        let mut nodes: Vec<NodeId> = end.slots.iter().map(|old| old.value.slot.node).collect();
        nodes.dedup();
        let mut endings = Vec::with_capacity(nodes.len());
        let mut bytes = 0;
        for node in nodes {
            let Some(slab) = self.slab(node) else { continue };
            let rule = |slot| rule(end, node, slot);
            let allocate = |bytes| copy_memory(&self.plain, bytes);
            let ending = slab.prepare_end(&*self.device, &self.stream, &cause, rule, allocate)?;
            refuse_pinned(ending.kept(), rule)?;
            endings.push((node, ending));
        }
        // All outputs end together: whatever could not be had for it was missed above.
        for (node, ending) in endings {
            let Some(slab) = self.slab_mut(node) else { continue };
            let ended = slab.end(ending);
            // Somebody has taken the address since the call was decided: nothing may be written there.
            refuse_pinned(&ended.kept, |slot| rule(end, node, slot))?;
            self.note_copies(node, ended.copied.len());
            self.stats.copied_out += ended.bytes;
            bytes += ended.bytes;
        }
        let stale = end.slots.iter().filter(|old| old.fate == Fate::Invalidate).count();
        self.note_path_end(request, stale, end.slots.len() - stale, bytes);
        Ok(())
    }

    fn note_copies(&mut self, node: NodeId, count: usize) {
        match self.copied.iter_mut().find(|(of, _)| *of == node) {
            Some((_, left)) => *left += count,
            None if count > 0 => self.copied.push((node, count)),
            None => {}
        }
    }

    /// Gives back copies of old outputs that nobody reads any more: the drop of a handle does not, because it may happen anywhere.
    pub(crate) fn sweep(&mut self) {
        let mut copied = std::mem::take(&mut self.copied);
        copied.retain_mut(|(node, left)| {
            let swept = self.slab_mut(*node).map(Slab::sweep);
            *left = swept.map_or(0, |swept| left.saturating_sub(swept));
            *left > 0
        });
        self.copied = copied;
    }

    /// Why a path cannot end, if somebody has the address of an output that would be gone.
    pub(crate) fn pinned(&self, end: &PathEnd) -> Option<String> {
        let slots = end.slots.iter().map(|old| old.value.slot);
        let mut pinned = slots.filter(|slot| {
            let index = SlotIndex::new(slot.index.get());
            self.slab(slot.node).is_some_and(|slab| slab.is_pinned(index))
        });
        let slot = pinned.next()?;
        let spec = self.tree.node(slot.node).and_then(|node| self.tree.function_spec(node.function()));
        let producer = spec.map_or("a function", |spec| spec.name());
        Some(format!("a step cannot begin while output {} of {producer} is pinned", slot.index.get()))
    }

    /// Copies inputs of the call that lie on the ending path and would not outlive it.
    fn carry(&mut self, args: &mut [Arg<'_, D>], end: &PathEnd) -> Result<()> {
        let mut copies: HashMap<SlotValue, Storage> = HashMap::new();
        // A view of nothing has nothing to copy, and would be stale with what it is a view of.
        for arg in args.iter_mut() {
            let Some(tensor) = arg.tensor().filter(|tensor| tensor.layout().is_empty()) else { continue };
            if tensor.storage().slot_value()?.is_some() {
                *arg = Arg::Given(Tensor::empty(tensor.layout().clone())?);
            }
        }
        for input in &end.carried {
            let Some(arg) = args.get_mut(input.get() as usize) else { continue };
            let Some(tensor) = arg.tensor() else { continue };
            let Some(value) = tensor.storage().slot_value()? else { continue };
            let is_copied_out = end.slots.iter().any(|old| {
                old.fate != Fate::Invalidate
                    && self.by_slab.get(&value.slab) == Some(&old.value.slot.node)
                    && old.value.slot.index.get() == value.slot.get()
            });
            // Its handles read the copy, and so do those that others have: what the call writes to it is seen by all.
            if is_copied_out {
                continue;
            }
            let storage = match copies.get(&value) {
                Some(storage) => storage.clone(),
                None => {
                    let (base, bytes) = (tensor.storage().base()?, tensor.storage().bytes()?);
                    let ask = Ask::bytes(bytes).owner(Owner::Output).label("carried input");
                    let storage = plain(&self.plain, ask)?;
                    self.device.copy(&self.stream, storage.base()?, base, bytes)?;
                    self.has_copied_inputs = true;
                    copies.insert(value, storage.clone());
                    storage
                }
            };
            let copy = Tensor::new(storage, tensor.layout().clone(), tensor.offset_bytes())?;
            *arg = Arg::Given(copy);
        }
        Ok(())
    }

    /// Orders what comes next on `second` behind all that `first` was given.
    pub(crate) fn bridge(&self, first: &D::Stream, second: &D::Stream) -> Result<()> {
        if first.id() != second.id() {
            let event = self.device.create_event()?;
            self.device.record_event(&event, first)?;
            self.device.wait_event(second, &event)?;
        }
        Ok(())
    }
}

/// What the tree has decided of an output.
fn rule(end: &PathEnd, node: NodeId, slot: SlotIndex) -> OldOutput {
    let is_it = |old: &&graphgrove_tree::OldSlot| {
        old.value.slot.node == node && old.value.slot.index.get() == slot.get()
    };
    match end.slots.iter().find(is_it).map(|old| old.fate) {
        Some(Fate::Invalidate) => OldOutput::Error,
        Some(Fate::CopyOut | Fate::CopyOutForBackward(_)) => OldOutput::CopyOut,
        None => OldOutput::Keep,
    }
}

/// Refuses slots that stay although they should not.
fn refuse_pinned(kept: &[SlotIndex], rule: impl Fn(SlotIndex) -> OldOutput) -> Result<()> {
    match kept.iter().find(|slot| rule(**slot) != OldOutput::Keep) {
        Some(slot) => Err(StorageError::Pinned { slot: *slot }.into()),
        None => Ok(()),
    }
}

fn copy_memory<D: Device>(
    pool: &Pool<D>,
    bytes: u64,
) -> Result<(graphgrove_device::DevicePtr, graphgrove_storage::Owner), StorageError> {
    let ask = Ask::bytes(bytes).owner(Owner::Output).label("copied output");
    let block = pool.allocate(ask).map_err(|error| match error {
        graphgrove_pool::PoolError::Device(error) => StorageError::Device(error),
        other => StorageError::NoMemory { bytes, why: other.to_string() },
    })?;
    Ok((block.ptr(), Box::new(Lease(block))))
}
