//! The engines that a program is run on.

use graphgrove::{Layers, Mode};

/// One engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How calls run.
    pub mode: Mode,
    /// Its layers.
    pub layers: Layers,
    /// Whether recordings lay their memory out by a plan.
    pub plan_memory: bool,
    /// The most bytes that recordings may take.
    pub budget: Option<u64>,
}

impl Setup {
    /// An engine whose recordings may take so many bytes.
    #[must_use]
    pub fn within(mode: Mode, budget: u64) -> Self {
        Self { mode, layers: Layers::all(), plan_memory: true, budget: Some(budget) }
    }

    /// Every mode with every prefix of the layers, with and without memory plans; plain runs only once, which know neither.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all =
            vec![Self { mode: Mode::Eager, layers: Layers::all(), plan_memory: true, budget: None }];
        for mode in [Mode::Trees, Mode::OnePool] {
            for prefix in (0..=5).rev() {
                for plan_memory in [true, false] {
                    all.push(Self { mode, layers: Layers::prefix(prefix), plan_memory, budget: None });
                }
            }
        }
        all
    }
}
