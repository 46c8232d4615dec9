//! The alias planner: what each output of a function is, decided once, when it is recorded.

use std::collections::HashMap;

use crate::{
    Error, InputIndex, InputPlan, InputRole, OutputClass, PersistentSource, PlannedOutput, Readers,
    Signature, SlotIndex, SlotValue, StorageId, Tensor,
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
/// [`Error::ForeignOutput`] for a slot that is not on the path, [`Error::TooLarge`] for an offset that is no 63-bit number,
/// [`Error::Stale`].
pub fn plan_outputs(
    inputs: &InputPlan,
    passed: &[Option<Tensor>],
    outputs: &[OutputSpec<'_>],
    on_path: impl Fn(SlotValue) -> bool,
) -> Result<Vec<PlannedOutput>, Error> {
    let by_input = ByInput::new(inputs, passed)?;
    let mut owners: HashMap<StorageId, SlotIndex> = HashMap::with_capacity(outputs.len());
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

/// The inputs with memory, by the storages they were passed in.
struct ByInput<'a> {
    /// The first input that is this very tensor.
    same: HashMap<(StorageId, u64, Signature), Given<'a>>,
    /// All inputs in a storage, in their order.
    all: HashMap<StorageId, Vec<Given<'a>>>,
}

type Given<'a> = (InputIndex, InputRole, &'a Tensor);

impl<'a> ByInput<'a> {
    fn new(inputs: &InputPlan, passed: &'a [Option<Tensor>]) -> Result<Self, Error> {
        let (mut same, mut all) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for ((input, role), tensor) in inputs.roles().zip(passed) {
            // An input without elements may still have a storage, but nothing is found by way of it.
            if let Some(tensor) = tensor
                && !tensor.layout().is_empty()
                && let Some(id) = tensor.storage().id()?
            {
                let key = (id, tensor.offset_bytes(), tensor.signature());
                same.entry(key).or_insert((input, role, tensor));
                all.entry(id).or_default().push((input, role, tensor));
            }
        }
        Ok(Self { same, all })
    }

    /// The input that an output of this storage is an alias of: the one that it is, one that it lies in, or any.
    ///
    /// Inputs that were staged together are passed in one storage although the caller's may be several, and only the one
    /// that the output lies in is sure to have all of it.
    fn find(&self, id: StorageId, output: &Tensor) -> Option<Given<'a>> {
        let span = |tensor: &Tensor| {
            let start = tensor.offset_bytes();
            (start, start + tensor.layout().span_bytes())
        };
        let all = self.all.get(&id)?;
        let same = self.same.get(&(id, output.offset_bytes(), output.signature()));
        let (start, end) = span(output);
        let is_around = |given: &&Given<'a>| {
            let (from, to) = span(given.2);
            from <= start && end <= to
        };
        same.or_else(|| all.iter().find(is_around)).or_else(|| all.first()).copied()
    }
}

fn plan_tensor(
    output: SlotIndex,
    tensor: &Tensor,
    by_input: &ByInput<'_>,
    owners: &mut HashMap<StorageId, SlotIndex>,
    on_path: &impl Fn(SlotValue) -> bool,
) -> Result<PlannedOutput, Error> {
    let layout = tensor.layout().clone();
    let Some(id) = tensor.storage().id()?.filter(|_| !layout.is_empty()) else {
        return Ok(PlannedOutput::empty(layout));
    };
    let signed = |offset: u64| i64::try_from(offset).map_err(|_| Error::TooLarge);
    let offset = signed(tensor.offset_bytes())?;
    if let Some((input, role, passed)) = by_input.find(id, tensor) {
        let from_input = offset - signed(passed.offset_bytes())?;
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
