//! Generating tokens, and what that took.

use std::sync::Arc;

use graphgrove::{Device, Engine, EngineBuilder, EngineStats, Mode, Result, args};

use crate::AnyError;
use crate::device::Backend;
use crate::model::{CAPACITY, Model, VOCABULARY};

/// Tokens that each sequence is given.
const PROMPT: u32 = 8;

/// What the sequences of one size took, all rounds together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) sequences: u32,
    pub(crate) calls: u64,
    pub(crate) recordings: u64,
    pub(crate) replays: u64,
    pub(crate) eager: u64,
}

/// What an engine has generated, and how.
pub(crate) struct Generated {
    /// The tokens of all sequences, in the order in which they were made.
    pub(crate) tokens: Vec<u32>,
    pub(crate) work: Vec<Work>,
    pub(crate) stats: EngineStats,
}

/// Generates for batches of these sizes in turn, so many rounds, on an engine of its own.
pub(crate) fn generate<B: Backend>(
    backend: &B,
    mode: Mode,
    sizes: &[u32],
    rounds: u32,
    seed: u64,
) -> std::result::Result<Generated, AnyError> {
    let device = backend.device();
    let builder = EngineBuilder::default().mode(mode);
    let builder = match backend.pool() {
        Some(pool) => builder.pool(pool),
        None => builder,
    };
    let engine = builder.build(Arc::clone(&device))?;
    let model = Model::new(&engine, backend.kernels(&engine)?, seed)?;
    let mut tokens = Vec::new();
    let mut work: Vec<Work> = sizes.iter().map(|size| Work { sequences: *size, ..Work::default() }).collect();
    for round in 0..rounds {
        for work in &mut work {
            let before = engine.stats()?.calls;
            sequence(&engine, &model, work.sequences, round, &mut tokens)?;
            let after = engine.stats()?.calls;
            work.calls += u64::from(CAPACITY) + 1;
            work.recordings += after.recordings - before.recordings;
            work.replays += after.replays - before.replays;
            work.eager += after.eager - before.eager;
        }
    }
    backend.verdict(&device)?;
    Ok(Generated { tokens, work, stats: engine.stats()? })
}

/// Fills the cache once: first with the prompts, then with what the model says.
fn sequence<D: Device>(
    engine: &Engine<D>,
    model: &Model<D>,
    sequences: u32,
    round: u32,
    made: &mut Vec<u32>,
) -> Result<()> {
    engine.begin_step()?;
    drop(model.clear.with(&model.params).call(args![])?);
    let mut said = None;
    for position in 0..CAPACITY {
        let tokens = match said.take() {
            Some(said) if position >= PROMPT => said,
            _ => {
                let prompt = |sequence| (7 * round + 13 * sequence + 5 * position) % VOCABULARY;
                let prompt: Vec<u32> = (0..sequences).map(prompt).collect();
                engine.tensor(&[sequences.into()], &prompt)?
            }
        };
        // Each token is a step: what the last one has left is an input, and nothing else of it is needed.
        engine.begin_step()?;
        let [next] = model.decode.with(&model.params).call(args![tokens])?.into_array()?;
        made.extend(engine.read::<u32>(&next)?);
        said = Some(next);
    }
    Ok(())
}
