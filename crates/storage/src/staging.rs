//! Staging: inputs that share memory are copied in one piece, and some overlaps cannot be copied at all.

use std::fmt;

use smallvec::SmallVec;

use crate::inputs::Planned;
use crate::overlap::may_overlap;
use crate::{Error, InputIndex, InputRole, Layout};

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

/// An input with memory, while the plan is made.
pub(crate) struct Region<'a> {
    pub(crate) input: InputIndex,
    pub(crate) start: u64,
    pub(crate) layout: &'a Layout,
    pub(crate) mutated: bool,
}

impl Region<'_> {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.layout.span_bytes())
    }

    fn overlaps(&self, other: &Self) -> bool {
        may_overlap(self.layout, self.start, other.layout, other.start)
    }
}

/// Sorts the regions by address, and refuses what copying would tear apart.
pub(crate) fn refuse_conflicts(staged: &mut [Region<'_>], in_place: &mut [Region<'_>]) -> Result<(), Error> {
    staged.sort_by_key(|region| (region.start, region.input));
    in_place.sort_by_key(|region| (region.start, region.input));
    // How far the regions in place reach, up to each of them: further down there is nothing to compare with.
    let reach: Vec<u64> = in_place
        .iter()
        .scan(0, |reach, region| {
            *reach = region.end().max(*reach);
            Some(*reach)
        })
        .collect();
    for (at, a) in staged.iter().enumerate() {
        for b in staged.iter().skip(at + 1).take_while(|b| b.start < a.end()) {
            let same = a.start == b.start && a.layout == b.layout;
            if (a.mutated || b.mutated) && !same && a.overlaps(b) {
                return Err(Error::Refused(Conflict::PartialOverlap { a: a.input, b: b.input }));
            }
        }
        let before = in_place.partition_point(|other| other.start < a.end());
        let near = in_place.iter().zip(&reach).take(before).rev();
        for (other, _) in near.take_while(|&(_, &reach)| reach > a.start) {
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
pub(crate) fn group(staged: &[Region<'_>], alignment: u64, planned: &mut [Planned]) -> Vec<StageGroup> {
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
