//! Memory of one word a cell, a pool of cells, and recordings that replay with the cells frozen.

use std::collections::BTreeSet;

/// A place in memory.
pub(super) type Cell = usize;

/// Folds words into one, so that every value tells what it was computed from.
pub(super) fn fold(words: impl IntoIterator<Item = u64>) -> u64 {
    words
        .into_iter()
        .fold(0x9E37_79B9, |all: u64, word| (all.rotate_left(17) ^ word).wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

/// The memory, and which cells the pool holds to be in use.
#[derive(Debug, Default)]
pub(super) struct Memory {
    words: Vec<u64>,
    pub(super) used: BTreeSet<Cell>,
    /// Chooses among the free cells, so that programs do not always reuse the lowest one.
    dice: u64,
}

impl Memory {
    pub(super) fn new(seed: u64) -> Self {
        Self { dice: fold([seed]) | 1, ..Self::default() }
    }

    pub(super) fn obtain(&mut self) -> Cell {
        self.dice = fold([self.dice]);
        let free: Vec<_> = (0..).filter(|cell| !self.used.contains(cell)).take(3).collect();
        let cell = free[(self.dice >> 40) as usize % free.len()];
        self.used.insert(cell);
        cell
    }

    pub(super) fn read(&self, cell: Cell) -> u64 {
        self.words.get(cell).copied().unwrap_or(0)
    }

    pub(super) fn write(&mut self, cell: Cell, word: u64) {
        if self.words.len() <= cell {
            self.words.resize(cell + 1, 0);
        }
        self.words[cell] = word;
    }
}

/// Where recorded work finds an input.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In place.
    At(Cell),
    /// In a staging buffer that is filled before the work begins.
    Staging(Cell),
    /// A value that was frozen.
    Frozen(u64),
}

/// One parameter as recorded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Param {
    /// Read at this address for ever.
    At(u64),
    /// Copied from wherever it is at each call.
    Staged,
}

/// The work of one call with every address frozen.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    pub(super) seed: u64,
    pub(super) inputs: Vec<Place>,
    pub(super) mutated: Vec<bool>,
    pub(super) params: Vec<Param>,
    /// Temporaries that are written before the inputs are read, and after.
    pub(super) before: Vec<Cell>,
    pub(super) after: Vec<Cell>,
    /// The cells of fresh outputs; none for the others.
    pub(super) outputs: Vec<Option<Cell>>,
}

/// What an output is, computed from what was read.
pub(super) fn output(seed: u64, index: usize, read: &[u64]) -> u64 {
    fold([seed, index as u64].into_iter().chain(read.iter().copied()))
}

/// What an input is after it was written to.
pub(super) fn mutated(word: u64) -> u64 {
    fold([word, 77])
}

impl Work {
    /// Runs it. `staged` brings, for every staged input, its word; `params` the parameters of the call.
    /// Returns what each input holds afterwards where it was read.
    pub(super) fn launch(&self, memory: &mut Memory, staged: &[Option<u64>], params: &[u64]) -> Vec<u64> {
        for (place, word) in self.inputs.iter().zip(staged) {
            if let (Place::Staging(cell), Some(word)) = (place, word) {
                memory.write(*cell, *word);
            }
        }
        self.before.iter().for_each(|cell| memory.write(*cell, 0xBAD1));
        let mut read: Vec<u64> = self
            .inputs
            .iter()
            .map(|place| match *place {
                Place::At(cell) | Place::Staging(cell) => memory.read(cell),
                Place::Frozen(word) => word,
            })
            .collect();
        let mut all = read.clone();
        for ((place, word), written) in self.inputs.iter().zip(&mut read).zip(&self.mutated) {
            if let (Place::At(cell) | Place::Staging(cell), true) = (place, written) {
                *word = mutated(*word);
                memory.write(*cell, *word);
            }
        }
        all.extend(self.params.iter().zip(params).map(|(param, given)| match param {
            Param::At(address) => *address,
            Param::Staged => *given,
        }));
        self.after.iter().for_each(|cell| memory.write(*cell, 0xBAD2));
        for (index, cell) in self.outputs.iter().enumerate() {
            if let Some(cell) = cell {
                memory.write(*cell, output(self.seed, index, &all));
            }
        }
        read
    }
}
