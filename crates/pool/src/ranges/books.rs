//! How much host memory the allocator keeps.

use super::Ranges;

/// How many entries the tables of an allocator have. Each entry takes less than 100 bytes of host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeBooks {
    /// Slots of the side table: as many as there were ever blocks live or remembered at once, with the free ones.
    pub slots: usize,
    /// Places for versions: as many as there ever were at once.
    pub versions: usize,
    /// Births and deaths that separate the versions from each other and from the present state.
    pub journal: usize,
}

impl Ranges {
    /// How many entries the tables have. Costs a pass over the versions.
    #[must_use]
    pub fn books(&self) -> RangeBooks {
        let (versions, journal) = self.history.entries();
        RangeBooks { slots: self.slots.len(), versions, journal }
    }
}
