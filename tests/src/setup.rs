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
}

impl Setup {
    /// Every mode with every prefix of the layers, with and without memory plans; plain runs only once, which know neither.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self { mode: Mode::Eager, layers: Layers::all(), plan_memory: true }];
        for mode in [Mode::Trees, Mode::OnePool] {
            for prefix in (0..=5).rev() {
                for plan_memory in [true, false] {
                    all.push(Self { mode, layers: Layers::prefix(prefix), plan_memory });
                }
            }
        }
        all
    }
}
