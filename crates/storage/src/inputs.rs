//! What becomes of each input: decided once, before its function is recorded, with its alignment.

use std::fmt;

use graphgrove_device::DevicePtr;
use smallvec::SmallVec;

use crate::overlap::may_overlap;
use crate::{Error, InputIndex, Layout, Signature, SlotValue, Tensor};

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

/// Inputs that are staged together because they share memory, so that they share it where they are staged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageGroup {
    /// Its inputs, in the order of their addresses.
    pub inputs: SmallVec<[InputIndex; 1]>,
    /// The bytes in front of the copy that keep aligned inputs aligned.
    pub lead: u64,
    /// The bytes that are copied, from the first address of its inputs on.
    pub bytes: u64,
}

impl StageGroup {
    /// The bytes that the group's buffer needs. Its start must be aligned to what the plan was made with.
    #[must_use]
    pub const fn buffer_bytes(&self) -> u64 {
        self.lead + self.bytes
    }
}

/// What becomes of each input of a function, fixed when it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPlan {
    inputs: Box<[Planned]>,
    groups: Box<[StageGroup]>,
    alignment: u64,
}

/// One input as planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned {
    role: InputRole,
    signature: Option<Signature>,
    mutated: bool,
}

/// Inputs that cannot be dealt with by copying them to a recorded address, and back if they are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflict {
    /// Two staged inputs have some memory in common but are not the same, and one is written to.
    PartialOverlap {
        /// The one at the lower address.
        a: InputIndex,
        /// The other one.
        b: InputIndex,
    },
    /// A staged input has memory in common with one that is used in place, and one is written to.
    StagedOverInPlace {
        /// The staged one.
        staged: InputIndex,
        /// The other one.
        in_place: InputIndex,
    },
    /// An input is written to, and two of its elements are the same memory.
    OverlapsItself {
        /// The input.
        input: InputIndex,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PartialOverlap { a, b } => {
                write!(f, "overlapping mutated inputs: {a} and {b} share some memory")
            }
            Self::StagedOverInPlace { staged, in_place } => {
                write!(
                    f,
                    "overlapping mutated inputs: {staged} would be copied and {in_place} is used in place"
                )
            }
            Self::OverlapsItself { input } => {
                write!(f, "overlapping mutated inputs: elements of {input} share memory")
            }
        }
    }
}

/// Why inputs do not fit a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misfit {
    /// There are more or fewer inputs.
    Count {
        /// How many there are.
        given: usize,
        /// How many were recorded.
        recorded: usize,
    },
    /// The layout differs, or a tensor stands where none was or the other way round.
    Signature {
        /// The input.
        input: InputIndex,
    },
    /// The function writes to another set of inputs.
    Mutation {
        /// The input.
        input: InputIndex,
    },
    /// An input that is used in place has come to an address that is not aligned.
    Misaligned {
        /// The input.
        input: InputIndex,
        /// Its address.
        address: DevicePtr,
    },
    /// A parameter is elsewhere, a managed input is another value, or an input has another role altogether.
    Role {
        /// The input.
        input: InputIndex,
    },
    /// Staged inputs share memory in another way.
    Sharing {
        /// The input.
        input: InputIndex,
    },
}

/// An input with memory, while the plan is made.
struct Region<'a> {
    input: InputIndex,
    start: u64,
    layout: &'a Layout,
    mutated: bool,
}

impl Region<'_> {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.layout.span_bytes())
    }

    fn overlaps(&self, other: &Self) -> bool {
        may_overlap(self.layout, self.start, other.layout, other.start)
    }
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
    fn with(
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
        refuse_conflicts(&mut staged, &in_place)?;
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

    /// Whether a recording with this plan is right for these inputs: the plan of the inputs is made and compared, which is
    /// what a faster check has to agree with. The runs of managed inputs are not compared, since each replay has its own.
    /// What is staged may come from anywhere.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn misfit(
        &self,
        inputs: &[InputSpec<'_>],
        on_path: impl Fn(SlotValue) -> bool,
    ) -> Result<Option<Misfit>, Error> {
        if inputs.len() != self.inputs.len() {
            return Ok(Some(Misfit::Count { given: inputs.len(), recorded: self.inputs.len() }));
        }
        let is_staged = |input| matches!(self.role(input), Some(InputRole::Staged(_)));
        let given = Self::with(inputs, self.alignment, on_path, is_staged)?;
        for ((input, recorded), (now, spec)) in
            (0..).map(InputIndex::new).zip(&self.inputs).zip(given.inputs.iter().zip(inputs))
        {
            if let Some(misfit) = recorded.misfit(now, input, spec)? {
                return Ok(Some(misfit));
            }
        }
        for (recorded, now) in self.groups.iter().zip(&given.groups) {
            let moved =
                recorded.inputs.iter().copied().find(|&input| self.shift(input) != given.shift(input));
            if let Some(&input) = recorded.inputs.first()
                && recorded.inputs != now.inputs
            {
                return Ok(Some(Misfit::Sharing { input }));
            }
            if let Some(input) = moved {
                return Ok(Some(Misfit::Sharing { input }));
            }
        }
        let more = given.groups.get(self.groups.len()).or_else(|| self.groups.get(given.groups.len()));
        Ok(more.and_then(|group| group.inputs.first()).map(|&input| Misfit::Sharing { input }))
    }

    /// How far a staged input lies behind the first of its group.
    fn shift(&self, input: InputIndex) -> Option<u64> {
        let Some(InputRole::Staged(staged)) = self.role(input) else { return None };
        Some(staged.offset - self.groups.get(staged.group as usize)?.lead)
    }
}

impl Planned {
    fn misfit(&self, now: &Self, input: InputIndex, spec: &InputSpec<'_>) -> Result<Option<Misfit>, Error> {
        if self.signature != now.signature {
            return Ok(Some(Misfit::Signature { input }));
        }
        if self.mutated != now.mutated {
            return Ok(Some(Misfit::Mutation { input }));
        }
        Ok(match (self.role, now.role) {
            (InputRole::Parameter { address: a }, InputRole::Parameter { address: b }) if a == b => None,
            (
                InputRole::Managed { value: a, offset: at_a },
                InputRole::Managed { value: b, offset: at_b },
            ) if (a.slab, a.slot, at_a) == (b.slab, b.slot, at_b) => None,
            // How they share memory is compared group by group.
            (InputRole::Staged(_), InputRole::Staged(_))
            | (InputRole::Empty, InputRole::Empty)
            | (InputRole::NotTensor, InputRole::NotTensor) => None,
            (
                InputRole::Parameter { .. } | InputRole::Managed { .. },
                InputRole::Staged(Staged { why: StagedBecause::Misaligned, .. }),
            ) => {
                let address = spec.tensor.map_or(Ok(DevicePtr::NULL), Tensor::address)?;
                Some(Misfit::Misaligned { input, address })
            }
            _ => Some(Misfit::Role { input }),
        })
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

/// Sorts the staged regions by address, and refuses what copying would tear apart.
fn refuse_conflicts(staged: &mut [Region<'_>], in_place: &[Region<'_>]) -> Result<(), Error> {
    staged.sort_by_key(|region| (region.start, region.input));
    for (at, a) in staged.iter().enumerate() {
        for b in staged.iter().skip(at + 1).take_while(|b| b.start < a.end()) {
            let same = a.start == b.start && a.layout == b.layout;
            if (a.mutated || b.mutated) && !same && a.overlaps(b) {
                return Err(Error::Refused(Conflict::PartialOverlap { a: a.input, b: b.input }));
            }
        }
        for other in in_place {
            if (a.mutated || other.mutated) && a.overlaps(other) {
                return Err(Error::Refused(Conflict::StagedOverInPlace {
                    staged: a.input,
                    in_place: other.input,
                }));
            }
        }
    }
    Ok(())
}

/// Puts staged regions, sorted by address, that reach into each other into one group each. The groups are in the order of
/// the first of their inputs, which does not depend on where the inputs lie.
fn group(staged: &[Region<'_>], alignment: u64, planned: &mut [Planned]) -> Vec<StageGroup> {
    let mut groups = Vec::new();
    let mut rest = staged;
    while let Some(first) = rest.first() {
        let mut end = first.end();
        let mut count = 1;
        while let Some(next) = rest.get(count).filter(|next| next.start < end) {
            end = end.max(next.end());
            count += 1;
        }
        let (members, others) = rest.split_at(count);
        rest = others;
        groups.push((first.start, end, members));
    }
    groups.sort_by_key(|(_, _, members)| members.iter().map(|region| region.input).min());
    let groups = (0..).zip(groups).map(|(number, (start, end, members))| {
        // One that is aligned where it is has to be aligned where it is staged to. If none is, aligning the first helps it.
        let is_aligned = |region: &Region<'_>| region.start.is_multiple_of(alignment);
        let lead = if members.iter().any(is_aligned) { start % alignment } else { 0 };
        for region in members {
            if let Some(Planned { role: InputRole::Staged(staged), .. }) =
                planned.get_mut(region.input.get() as usize)
            {
                (staged.group, staged.offset) = (number, lead + (region.start - start));
            }
        }
        StageGroup { inputs: members.iter().map(|region| region.input).collect(), lead, bytes: end - start }
    });
    groups.collect()
}
