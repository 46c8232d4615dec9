//! How often a function uses its inputs, found before it is recorded: what a choice between copying and patching needs.

use graphgrove_device::{Args, DevicePtr, NodeId};
use graphgrove_storage::{InputIndex, InputPlan, Tensor};

use crate::journal::{Journal, Watched, in_place};
use crate::{Error, Unpatchable};

/// Counts the uses of staged inputs while a function runs plainly, as in a warm-up.
///
/// Whoever runs the function reports what it enqueues. Work that is not reported is found when the function is recorded with
/// a patched input, and refused then.
#[derive(Debug)]
pub struct Uses {
    journal: Journal,
    /// Stands for the nodes that the same work becomes when it is captured.
    next: u32,
}

impl Uses {
    /// Nothing was used yet. `plan` was made for `inputs`.
    ///
    /// # Errors
    /// [`Error::InputCount`], [`Error::Storage`] for a stale input.
    pub fn new(plan: &InputPlan, inputs: &[Option<&Tensor>]) -> Result<Self, Error> {
        let planned = plan.roles().count();
        if planned != inputs.len() {
            return Err(Error::InputCount { planned, given: inputs.len() });
        }
        let mut watched = Vec::new();
        for group in plan.groups() {
            let Some(first) = group.inputs.first() else { continue };
            let Some(tensor) = inputs.get(first.get() as usize).copied().flatten() else { continue };
            watched.push(Watched { input: first.get(), start: tensor.address()?, bytes: group.bytes });
        }
        let in_place =
            in_place(inputs, |input| plan.groups().iter().any(|group| group.inputs.contains(&input)))?;
        Ok(Self { journal: Journal::new(watched, in_place), next: 0 })
    }

    /// A kernel was launched.
    pub fn launched(&mut self, kernel: &str, args: &Args) {
        let node = self.node();
        self.journal.kernel(node, kernel, args);
    }

    /// A copy within the device was enqueued.
    pub fn copied(&mut self, to: DevicePtr, from: DevicePtr) {
        let node = self.node();
        self.journal.copy(node, to, from);
    }

    /// A fill was enqueued.
    pub fn filled(&mut self, to: DevicePtr) {
        self.journal.fill(to);
    }

    /// In how many pieces of work an input's address stands; none if it cannot be patched. Inputs that share memory are counted
    /// together, for the first of them.
    #[must_use]
    pub fn nodes(&self, input: InputIndex) -> Option<usize> {
        if self.obstacle().is_some() {
            return None;
        }
        self.journal.counts().find(|(of, _)| *of == input).map(|(_, count)| count)
    }

    /// Why nothing can be patched, if so.
    #[must_use]
    pub fn obstacle(&self) -> Option<&Unpatchable> {
        self.journal.obstacle()
    }

    fn node(&mut self) -> Option<NodeId> {
        self.next += 1;
        Some(NodeId::new(self.next))
    }
}
