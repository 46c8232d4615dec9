//! Random generators: a seed, and how many draws were taken.
//!
//! A draw is a function of its seed and its number, so a generator is two numbers, and the host knows both without asking the device: each
//! function says how many draws it takes. Kernels find them in device memory, where a copy inside of the call's own work puts them: a
//! recording has the address, and each replay copies the numbers of its own turn.

use std::sync::Arc;

use graphgrove_device::Device;
use parking_lot::Mutex;

use crate::{Engine, Result};

/// Where a generator is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GeneratorState {
    /// Which sequence of draws it is.
    pub seed: u64,
    /// The number of the next draw.
    pub offset: u64,
}

/// A random generator of one engine. Clones are the same generator.
///
/// Each call of a function takes as many draws as the function asks for, once, whether it warms up, is recorded, is replayed or runs plainly;
/// so the same calls draw the same numbers in every mode. A call that fails takes none. What is set while a call runs holds from the next
/// one on; a function that sets it is not obeyed by its replays.
#[derive(Clone, Debug)]
pub struct Generator {
    engine: Arc<Identity>,
    inner: Arc<Mutex<Inner>>,
}

/// What tells engines apart, in an `Arc` of its own: the counts beside it have a place, though it has none.
#[derive(Debug, Default)]
pub(crate) struct Identity;

#[derive(Clone, Copy, Debug, Default)]
struct Inner {
    state: GeneratorState,
    /// How often it was set.
    version: u64,
}

/// Where a generator was when a call came to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) state: GeneratorState,
    version: u64,
}

impl Generator {
    pub(crate) fn new(engine: &Arc<Identity>, seed: u64) -> Self {
        let inner = Inner { state: GeneratorState { seed, offset: 0 }, version: 0 };
        Self { engine: Arc::clone(engine), inner: Arc::new(Mutex::new(inner)) }
    }

    /// Begins the sequence of a seed.
    pub fn seed(&self, seed: u64) {
        self.set_state(GeneratorState { seed, offset: 0 });
    }

    /// Where it is, behind all calls so far: what a checkpoint of a training run keeps.
    #[must_use]
    pub fn state(&self) -> GeneratorState {
        self.inner.lock().state
    }

    /// Goes to another place: from there on the same calls draw the same numbers.
    pub fn set_state(&self, state: GeneratorState) {
        let mut inner = self.inner.lock();
        *inner = Inner { state, version: inner.version.wrapping_add(1) };
    }

    pub(crate) fn is_of(&self, engine: &Arc<Identity>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn turn(&self) -> Turn {
        let Inner { state, version } = *self.inner.lock();
        Turn { state, version }
    }

    /// Takes the draws of a call that began at `turn`, unless the generator was set meanwhile. Draws are numbered modulo 2^64.
    pub(crate) fn take(&self, turn: &Turn, draws: u64) {
        let mut inner = self.inner.lock();
        if inner.version == turn.version {
            inner.state.offset = turn.state.offset.wrapping_add(draws);
        }
    }
}

impl<D: Device> Engine<D> {
    /// The generator that functions [draw](crate::Context::random) from if they do not name one. It begins with seed 0.
    #[must_use]
    pub fn generator(&self) -> &Generator {
        &self.0.kit.generator
    }

    /// Another generator, for functions of this engine.
    #[must_use]
    pub fn new_generator(&self, seed: u64) -> Generator {
        Generator::new(&self.0.kit.engine, seed)
    }

    /// Seeds the engine's generator. It waits for a call that is running on another thread.
    ///
    /// # Errors
    /// [`Error::Nested`](crate::Error::Nested)
    pub fn seed(&self, seed: u64) -> Result<()> {
        self.0.with("seed", |_| {
            self.0.kit.generator.seed(seed);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_taken_once_and_a_state_that_was_set_meanwhile_stays() {
        let generator = Generator::new(&Arc::default(), 7);
        let turn = generator.turn();
        generator.take(&turn, 3);
        generator.take(&turn, 3);
        assert_eq!(generator.state(), GeneratorState { seed: 7, offset: 3 });
        let turn = generator.turn();
        generator.seed(7);
        generator.take(&turn, 5);
        assert_eq!(generator.state(), GeneratorState { seed: 7, offset: 0 });
    }

    #[test]
    fn draws_are_numbered_modulo_all_there_are() {
        let generator = Generator::new(&Arc::default(), 0);
        generator.set_state(GeneratorState { seed: 1, offset: u64::MAX });
        generator.take(&generator.turn(), 2);
        assert_eq!(generator.state(), GeneratorState { seed: 1, offset: 1 });
    }

    #[test]
    fn generators_know_their_engine() {
        let (one, other) = (Arc::new(Identity), Arc::new(Identity));
        let generator = Generator::new(&one, 0);
        assert!(generator.is_of(&one) && !generator.is_of(&other));
        assert!(generator.is_same(&generator.clone()) && !generator.is_same(&Generator::new(&one, 0)));
    }
}
