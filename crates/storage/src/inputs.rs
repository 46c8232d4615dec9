//! What becomes of each input: decided once, before its function is recorded, with its alignment.

use graphgrove_device::DevicePtr;

use crate::staging::{Region, group, refuse_conflicts};
use crate::{Conflict, Error, InputIndex, Signature, SlotValue, StageGroup, Tensor};

/// One input of a call, as the caller passes it.
#[derive(Clone, Copy, Debug)]
pub struct InputSpec<'a> {
    /// The tensor; none if it is not one.
    pub tensor: Option<&'a Tensor>,
    /// Whether its address is declared stable.
    pub parameter: bool,
    /// Whether the caller gives it up.
    pub moved: bool,
    /// Whether the function writes to it.
    pub mutated: bool,
}

impl<'a> InputSpec<'a> {
    /// A tensor that is only read and that the caller keeps.
    #[must_use]
    pub const fn read(tensor: &'a Tensor) -> Self {
        Self { tensor: Some(tensor), parameter: false, moved: false, mutated: false }
    }

    /// A tensor whose address is declared stable.
    #[must_use]
    pub const fn parameter(tensor: &'a Tensor) -> Self {
        Self { parameter: true, ..Self::read(tensor) }
    }

    /// The same input, given up by the caller.
    #[must_use]
    pub const fn moved(self) -> Self {
        Self { moved: true, ..self }
    }

    /// The same input, written to by the function.
    #[must_use]
    pub const fn mutated(self) -> Self {
        Self { mutated: true, ..self }
    }
}

/// What becomes of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputRole {
    /// It is used where it is, and must be there at each replay: its address is declared stable and is aligned.
    Parameter {
        /// The address of its first element.
        address: DevicePtr,
    },
    /// It is used where it is: an output of the path, whose identity must be the same at each replay.
    Managed {
        /// The slot and the run that wrote it.
        value: SlotValue,
        /// The bytes from where its storage starts to its first element.
        offset: u64,
    },
    /// It is copied to a recorded address first.
    Staged(Staged),
    /// It has no memory.
    Empty,
    /// It is not a tensor.
    NotTensor,
}

/// How an input is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Why it is not used where it is.
    pub why: StagedBecause,
    /// Which of the plan's [groups](InputPlan::groups) it belongs to.
    pub group: u32,
    /// The bytes from where the group's buffer starts to its first element.
    pub offset: u64,
    /// Whether the caller gave it up.
    pub moved: bool,
}

/// Why an input is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagedBecause {
    /// Nobody declared its address stable.
    Foreign,
    /// It could be used in place, but its address is not aligned as recorded kernels may rely on.
    Misaligned,
}

/// What becomes of each input of a function, fixed when it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPlan {
    pub(crate) inputs: Box<[Planned]>,
    pub(crate) groups: Box<[StageGroup]>,
    pub(crate) alignment: u64,
}

/// One input as planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) role: InputRole,
    pub(crate) signature: Option<Signature>,
    pub(crate) mutated: bool,
}

impl InputPlan {
    /// Plans the inputs of a call.
    ///
    /// An input is used in place only if its address is a multiple of `alignment` bytes, which recorded kernels may rely on:
    /// a misaligned parameter is no parameter but staged, decided here and for good. `on_path` says whether a slot's value
    /// is one of the current path.
    ///
    /// # Errors
    /// [`Error::Stale`] for an input whose value is gone, [`Error::Refused`] for inputs that overlap where one is written to.
    pub fn new(
        inputs: &[InputSpec<'_>],
        alignment: u64,
        on_path: impl Fn(SlotValue) -> bool,
    ) -> Result<Self, Error> {
        Self::with(inputs, alignment, on_path, |_| false)
    }

    /// As [`new`](Self::new), staging also what could be used in place if `stages` says so.
    pub(crate) fn with(
        inputs: &[InputSpec<'_>],
        alignment: u64,
        on_path: impl Fn(SlotValue) -> bool,
        stages: impl Fn(InputIndex) -> bool,
    ) -> Result<Self, Error> {
        let mut planned = Vec::with_capacity(inputs.len());
        let (mut staged, mut in_place) = (Vec::new(), Vec::new());
        for (input, spec) in (0..).map(InputIndex::new).zip(inputs) {
            let role = role(spec, alignment, &on_path, stages(input))?;
            let signature = spec.tensor.map(Tensor::signature);
            planned.push(Planned { role, signature, mutated: spec.mutated });
            let Some(tensor) = spec.tensor else { continue };
            let region = Region {
                input,
                start: tensor.address()?.get(),
                layout: tensor.layout(),
                mutated: spec.mutated,
            };
            if region.mutated && region.layout.may_overlap_itself() {
                return Err(Error::Refused(Conflict::OverlapsItself { input }));
            }
            match role {
                InputRole::Staged(_) => staged.push(region),
                InputRole::Parameter { .. } | InputRole::Managed { .. } => in_place.push(region),
                InputRole::Empty | InputRole::NotTensor => {}
            }
        }
        refuse_conflicts(&mut staged, &mut in_place)?;
        let groups = group(&staged, alignment, &mut planned);
        Ok(Self { inputs: planned.into(), groups: groups.into(), alignment })
    }

    /// What becomes of an input; none if there is no such input.
    #[must_use]
    pub fn role(&self, input: InputIndex) -> Option<InputRole> {
        self.inputs.get(input.get() as usize).map(|planned| planned.role)
    }

    /// What becomes of each input.
    pub fn roles(&self) -> impl Iterator<Item = (InputIndex, InputRole)> {
        (0..).map(InputIndex::new).zip(self.inputs.iter().map(|planned| planned.role))
    }

    /// The inputs that are staged, by what has to be copied in one piece.
    #[must_use]
    pub fn groups(&self) -> &[StageGroup] {
        &self.groups
    }

    /// The staged inputs that the function writes to, which have to be copied back.
    ///
    /// Of each only the [bytes of its elements](crate::Layout::byte_runs): what lies in its gaps may be that of an input which
    /// is used in place, and which the function has written to meanwhile.
    pub fn copied_back(&self) -> impl Iterator<Item = InputIndex> {
        let staged = |planned: &Planned| planned.mutated && matches!(planned.role, InputRole::Staged(_));
        (0..)
            .map(InputIndex::new)
            .zip(&self.inputs)
            .filter(move |(_, planned)| staged(planned))
            .map(|(input, _)| input)
    }

    /// The alignment in bytes that inputs in place have.
    #[must_use]
    pub const fn alignment(&self) -> u64 {
        self.alignment
    }
}

fn role(
    spec: &InputSpec<'_>,
    alignment: u64,
    on_path: &impl Fn(SlotValue) -> bool,
    is_staged: bool,
) -> Result<InputRole, Error> {
    let Some(tensor) = spec.tensor else { return Ok(InputRole::NotTensor) };
    let address = tensor.address()?;
    if tensor.layout().is_empty() || address.is_null() {
        return Ok(InputRole::Empty);
    }
    let managed = tensor.storage().slot_value()?.filter(|&value| on_path(value));
    let in_place = match managed {
        Some(value) => Some(InputRole::Managed { value, offset: tensor.offset_bytes() }),
        None => spec.parameter.then_some(InputRole::Parameter { address }),
    };
    let staged = |why| InputRole::Staged(Staged { why, group: 0, offset: 0, moved: spec.moved });
    Ok(match in_place {
        Some(role) if address.is_aligned_to(alignment) && !is_staged => role,
        Some(_) => staged(StagedBecause::Misaligned),
        None => staged(StagedBecause::Foreign),
    })
}
