//! The alias planner: what each output of a function is, decided once, when it is recorded.

use std::collections::HashMap;

use crate::{
    Error, InputIndex, InputPlan, InputRole, OutputClass, PersistentSource, PlannedOutput, Readers,
    SlotIndex, SlotValue, StorageId, Tensor,
};

/// One output of a function that was just recorded.
#[derive(Clone, Copy, Debug)]
pub struct OutputSpec<'a> {
    /// The tensor that the function returned; none if it returned something else.
    pub tensor: Option<&'a Tensor>,
    /// Who reads it.
    pub readers: Readers,
}

impl<'a> OutputSpec<'a> {
    /// An output for the caller.
    #[must_use]
    pub const fn returned(tensor: &'a Tensor) -> Self {
        Self { tensor: Some(tensor), readers: Readers::Caller }
    }

    /// An output that only the backward reads.
    #[must_use]
    pub const fn saved(tensor: &'a Tensor) -> Self {
        Self { tensor: Some(tensor), readers: Readers::Backward }
    }

    /// Something that is not a tensor.
    #[must_use]
    pub const fn not_tensor() -> Self {
        Self { tensor: None, readers: Readers::Caller }
    }
}

/// Classes the outputs of a function, in this order of questions: not a tensor; without elements; in the memory of an input;
/// in that of an earlier slot; in that of an earlier output; in a block that the function obtained; in memory from outside.
///
/// `passed` is what the function was given, input by input: for a staged input the tensor on its staging buffer. Identity
/// decides, not addresses. `on_path` says whether a slot's value is one of the current path.
///
/// # Errors
/// [`Error::ForeignOutput`] for a slot that is not on the path, [`Error::Stale`].
pub fn plan_outputs(
    inputs: &InputPlan,
    passed: &[Option<Tensor>],
    outputs: &[OutputSpec<'_>],
    on_path: impl Fn(SlotValue) -> bool,
) -> Result<Vec<PlannedOutput>, Error> {
    let mut by_input: HashMap<StorageId, (InputIndex, InputRole, &Tensor)> = HashMap::new();
    for ((input, role), tensor) in inputs.roles().zip(passed) {
        // An input without elements may still have a storage, but nothing is found by way of it.
        if let Some(tensor) = tensor
            && !tensor.layout().is_empty()
            && let Some(id) = tensor.storage().id()?
        {
            by_input.entry(id).or_insert((input, role, tensor));
        }
    }
    let mut owners: HashMap<StorageId, SlotIndex> = HashMap::new();
    let mut planned = Vec::with_capacity(outputs.len());
    for (output, spec) in (0..).map(SlotIndex::new).zip(outputs) {
        let plan = match spec.tensor {
            None => PlannedOutput::not_tensor(),
            Some(tensor) => plan_tensor(output, tensor, &by_input, &mut owners, &on_path)?,
        };
        planned.push(plan.read_by(spec.readers));
    }
    Ok(planned)
}

fn plan_tensor(
    output: SlotIndex,
    tensor: &Tensor,
    by_input: &HashMap<StorageId, (InputIndex, InputRole, &Tensor)>,
    owners: &mut HashMap<StorageId, SlotIndex>,
    on_path: &impl Fn(SlotValue) -> bool,
) -> Result<PlannedOutput, Error> {
    let layout = tensor.layout().clone();
    let Some(id) = tensor.storage().id()?.filter(|_| !layout.is_empty()) else {
        return Ok(PlannedOutput::empty(layout));
    };
    let offset = tensor.offset_bytes().cast_signed();
    if let Some(&(input, role, passed)) = by_input.get(&id) {
        let from_input = offset - passed.offset_bytes().cast_signed();
        return Ok(match role {
            InputRole::Managed { value, .. } => {
                PlannedOutput::alias(OutputClass::EarlierSlot { value, input: Some(input) }, layout, offset)
            }
            InputRole::Staged(staged) => {
                let class = OutputClass::StagedInput { input, moved: staged.moved };
                PlannedOutput::alias(class, layout, from_input)
            }
            _ => {
                let class = OutputClass::Persistent(PersistentSource::Input(input));
                PlannedOutput::alias(class, layout, from_input)
            }
        });
    }
    if let StorageId::Slot(value) = id {
        if !on_path(value) {
            return Err(Error::ForeignOutput { output, storage: id });
        }
        return Ok(PlannedOutput::alias(OutputClass::EarlierSlot { value, input: None }, layout, offset));
    }
    if let Some(&owner) = owners.get(&id) {
        return Ok(PlannedOutput::alias(OutputClass::Sibling(owner), layout, offset));
    }
    if tensor.storage().unadopted().is_none() {
        // From the start of what is captured, as its source is handed back: the bytes from its first element.
        let class = OutputClass::Persistent(PersistentSource::Captured);
        return Ok(PlannedOutput::alias(class, layout, 0));
    }
    owners.insert(id, output);
    let (base, bytes) = (tensor.storage().base()?, tensor.storage().bytes()?);
    Ok(PlannedOutput { offset, ..PlannedOutput::fresh(base, bytes, layout) })
}
