//! Whether a recording's inputs fit those of a call: what a compiled check has to agree with.

use graphgrove_device::DevicePtr;

use crate::inputs::Planned;
use crate::{Error, InputIndex, InputPlan, InputRole, InputSpec, SlotValue, Staged, StagedBecause, Tensor};

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

impl InputPlan {
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
