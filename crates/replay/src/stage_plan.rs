//! Which inputs are staged how: decided once, before a function is recorded.

use graphgrove_device::DevicePtr;
use graphgrove_storage::{InputIndex, InputPlan, InputRole, StageGroup, Tensor};
use smallvec::SmallVec;

use crate::runs::{self, Run};
use crate::{Error, Route};

/// The most pieces in which a strided input is copied. A tensor in more pieces is copied from its first byte to its last,
/// gaps included; one that is written to is refused, since its gaps are not the recording's to write.
pub const MOST_RUNS: u64 = 32;

/// Inputs that share memory and are staged in one piece, as whoever chooses their way sees them.
#[derive(Clone, Copy, Debug)]
pub struct Staged<'a> {
    /// The inputs.
    pub inputs: &'a [InputIndex],
    /// The bytes that a copy moves.
    pub bytes: u64,
    /// Whether the function writes to one of them.
    pub mutated: bool,
}

/// How each staged input of a function reaches the recorded work.
#[derive(Clone, Debug)]
pub struct StagePlan {
    pub(crate) groups: Vec<Group>,
    /// How many inputs the plan was made for, parameters included.
    pub(crate) inputs: usize,
    pub(crate) alignment: u64,
}

/// Inputs that share memory.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) route: Route,
    /// The bytes in front of the copy that keep aligned inputs aligned.
    pub(crate) lead: u64,
    /// From the first byte to the last.
    pub(crate) span: u64,
    pub(crate) members: SmallVec<[Member; 1]>,
    /// What is copied, counted from the first byte.
    pub(crate) runs: Vec<Run>,
    /// What is copied back, counted from the first byte.
    pub(crate) back: Vec<Run>,
    /// Whether one of them is written to.
    pub(crate) mutated: bool,
}

/// An input of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) input: u32,
    /// Bytes from the group's first byte.
    pub(crate) shift: u64,
}

impl Group {
    /// The first of its inputs in the order of their addresses, from which all else is counted.
    pub(crate) fn leader(&self) -> u32 {
        self.members.first().map_or(0, |member| member.input)
    }

    pub(crate) const fn buffer_bytes(&self) -> u64 {
        self.lead + self.span
    }
}

impl StagePlan {
    /// Plans the staged inputs of `plan`, which was made for `inputs`. `choose` picks the way of each group; see
    /// [`Costs::choose`](crate::Costs::choose).
    ///
    /// # Errors
    /// [`Error::InputCount`]; [`Error::TooScattered`] for a copied input that is written to and lies in too many pieces;
    /// [`Error::Storage`] for a stale input.
    pub fn new(
        plan: &InputPlan,
        inputs: &[Option<&Tensor>],
        mut choose: impl FnMut(Staged<'_>) -> Route,
    ) -> Result<Self, Error> {
        let planned = plan.roles().count();
        if planned != inputs.len() {
            return Err(Error::InputCount { planned, given: inputs.len() });
        }
        let groups = plan.groups().iter().map(|group| plan_group(plan, group, inputs, &mut choose));
        let groups = groups.collect::<Result<_, _>>()?;
        Ok(Self { groups, inputs: inputs.len(), alignment: plan.alignment() })
    }

    /// Nothing is staged: every one of so many inputs is used where it is.
    #[must_use]
    pub const fn nothing(inputs: usize) -> Self {
        Self { groups: Vec::new(), inputs, alignment: 1 }
    }

    /// The lengths in bytes of the buffers that copied inputs need, each aligned to what the input plan was made with.
    pub fn buffers(&self) -> impl Iterator<Item = u64> {
        self.copied().map(Group::buffer_bytes)
    }

    /// The way of an input; none if it is not staged.
    #[must_use]
    pub fn route(&self, input: InputIndex) -> Option<Route> {
        self.routes().find(|(of, _)| *of == input).map(|(_, route)| route)
    }

    /// The way of each staged input.
    pub fn routes(&self) -> impl Iterator<Item = (InputIndex, Route)> {
        self.groups
            .iter()
            .flat_map(|group| group.members.iter().map(|member| (InputIndex::new(member.input), group.route)))
    }

    pub(crate) fn copied(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| group.route == Route::Copied)
    }
}

fn plan_group(
    plan: &InputPlan,
    group: &StageGroup,
    inputs: &[Option<&Tensor>],
    choose: &mut impl FnMut(Staged<'_>) -> Route,
) -> Result<Group, Error> {
    let mutated: SmallVec<[InputIndex; 1]> =
        plan.copied_back().filter(|input| group.inputs.contains(input)).collect();
    let route = choose(Staged { inputs: &group.inputs, bytes: group.bytes, mutated: !mutated.is_empty() });
    let mut planned = Group {
        route,
        lead: group.lead,
        span: group.bytes,
        members: SmallVec::new(),
        runs: Vec::new(),
        back: Vec::new(),
        mutated: !mutated.is_empty(),
    };
    let mut pieces = 0_u64;
    for &input in &group.inputs {
        let shift = match plan.role(input) {
            Some(InputRole::Staged(staged)) => staged.offset - group.lead,
            _ => 0,
        };
        planned.members.push(Member { input: input.get(), shift });
        let Some(tensor) = inputs.get(input.get() as usize).copied().flatten() else { continue };
        let count = tensor.layout().byte_runs().count();
        pieces = pieces.saturating_add(count);
        if route == Route::Patched {
            continue;
        }
        let is_mutated = mutated.contains(&input);
        if is_mutated && count > MOST_RUNS {
            return Err(Error::TooScattered { input, runs: count, most: MOST_RUNS });
        }
        if pieces <= MOST_RUNS || is_mutated {
            let runs = runs::of(tensor.layout()).into_iter().map(|run| Run { at: run.at + shift, ..run });
            planned.runs.extend(runs.clone());
            if is_mutated {
                planned.back.extend(runs);
            }
        }
    }
    planned.runs = runs::merge(planned.runs);
    planned.back = runs::merge(planned.back);
    if pieces > MOST_RUNS {
        planned.runs = vec![Run { at: 0, bytes: group.bytes }];
    }
    Ok(planned)
}

/// The address of a group's first byte, for the inputs that `plan` was made with.
pub(crate) fn start(group: &Group, inputs: &[Option<&Tensor>]) -> Result<DevicePtr, Error> {
    let leader = group.members.first().map(|member| (member.input as usize, member.shift));
    let Some((input, shift)) = leader else { return Ok(DevicePtr::NULL) };
    let Some(tensor) = inputs.get(input).copied().flatten() else { return Ok(DevicePtr::NULL) };
    let address = tensor.address()?;
    Ok(DevicePtr::new(address.get().saturating_sub(shift)))
}
