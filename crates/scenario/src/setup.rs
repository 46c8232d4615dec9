//! The engines that a scenario is run on.

use std::fmt;

use graphgrove::{Layers, Mode};

use crate::ModeName;

/// One engine: a mode, and a prefix of the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// How calls run.
    pub mode: ModeName,
    /// How many layers there are, from the lowest one on.
    pub layers: u32,
}

/// How many layers there are.
pub const LAYERS: u32 = 5;

impl Setup {
    /// What counters, memory and addresses are demanded of, unless a scenario says otherwise: trees with every layer.
    pub const MAIN: Self = Self { mode: ModeName::Trees, layers: LAYERS };

    /// Every mode with every prefix of the layers; plain runs, which know no layers, once. The main one is the first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for mode in [ModeName::Trees, ModeName::OnePool] {
            all.extend((0..=LAYERS).rev().map(|layers| Self { mode, layers }));
        }
        all.push(Self { mode: ModeName::Eager, layers: LAYERS });
        all
    }

    pub(crate) fn mode(self) -> Mode {
        self.mode.of_engine()
    }

    pub(crate) fn layers(self) -> Layers {
        Layers::prefix(self.layers)
    }
}

impl ModeName {
    pub(crate) fn of_engine(self) -> Mode {
        match self {
            Self::Eager => Mode::Eager,
            Self::OnePool => Mode::OnePool,
            Self::Trees => Mode::Trees,
            Self::Auto => Mode::Auto,
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mode.word())?;
        if self.layers < LAYERS {
            write!(f, "/{}", self.layers)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_thirteen_set_ups_and_the_main_one_comes_first() {
        let all = Setup::all();
        assert_eq!((all.len(), all[0]), (13, Setup::MAIN));
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names[..2], ["trees", "trees/4"]);
        assert_eq!(names[11..], ["one-pool/0", "eager"]);
    }
}
