//! The data: red wines, eleven measurements each, and the grade that tasters gave them (P. Cortez et al., "Modeling wine
//! preferences by data mining from physicochemical properties", 2009), as the crate `linfa-datasets` ships them.

use graphgrove::{Device, Engine, Result, Tensor};

use crate::shuffle::Shuffle;

/// Measurements of a wine.
pub(crate) const FEATURES: usize = 11;
/// Grades 3 to 8.
pub(crate) const CLASSES: usize = 6;
/// The lowest grade that any wine has; the classes count from there.
const LOWEST_GRADE: usize = 3;
/// Wines that are kept for the evaluation.
const HELD_OUT: usize = 299;
/// Rows of an evaluation batch. The last one is shorter.
const EVALUATION_ROWS: usize = 128;
/// Rows of a micro-batch. The last one is shorter, and alone in its mini-batch.
const MICRO_ROWS: usize = 64;
/// Micro-batches whose gradients are accumulated before the weights are updated.
const MICROS: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Wine {
    measured: [f32; FEATURES],
    class: u32,
}

/// The wines: some to train with, the others to evaluate.
#[derive(Clone, Debug)]
pub(crate) struct Wines {
    training: Vec<Wine>,
    evaluation: Vec<Wine>,
}

/// Rows that are run together.
pub(crate) struct Batch {
    pub(crate) rows: usize,
    /// `rows` x [`FEATURES`]
    pub(crate) measured: Tensor,
    /// `rows` numbers below [`CLASSES`].
    pub(crate) classes: Tensor,
}

impl Wines {
    /// The data set, each measurement with mean 0 and deviation 1 over all wines. The seed says which ones are held out.
    pub(crate) fn load(seed: u64) -> Self {
        let data = linfa_datasets::winequality();
        let (records, grades) = (data.records(), data.targets());
        let mut training: Vec<Wine> = grades
            .iter()
            .map(|grade| Wine { measured: [0.0; FEATURES], class: (grade - LOWEST_GRADE) as u32 })
            .collect();
        for feature in 0..FEATURES {
            let column: Vec<f64> = records.column(feature).to_vec();
            let mean = column.iter().sum::<f64>() / column.len() as f64;
            let variance =
                column.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / column.len() as f64;
            for (wine, value) in training.iter_mut().zip(column) {
                wine.measured[feature] = ((value - mean) / variance.sqrt()) as f32;
            }
        }
        Shuffle::new(seed).apply(&mut training);
        let evaluation = training.split_off(training.len() - HELD_OUT);
        Self { training, evaluation }
    }

    /// The mini-batches of one epoch, in an order of its own.
    pub(crate) fn epoch<D: Device>(
        &self,
        engine: &Engine<D>,
        shuffle: &mut Shuffle,
    ) -> Result<Vec<Vec<Batch>>> {
        let mut wines = self.training.clone();
        shuffle.apply(&mut wines);
        let mini = |wines: &[Wine]| wines.chunks(MICRO_ROWS).map(|rows| upload(engine, rows)).collect();
        wines.chunks(MICROS * MICRO_ROWS).map(mini).collect()
    }

    /// The batches of every evaluation.
    pub(crate) fn evaluation<D: Device>(&self, engine: &Engine<D>) -> Result<Vec<Batch>> {
        self.evaluation.chunks(EVALUATION_ROWS).map(|rows| upload(engine, rows)).collect()
    }
}

fn upload<D: Device>(engine: &Engine<D>, wines: &[Wine]) -> Result<Batch> {
    let rows = wines.len();
    let measured: Vec<f32> = wines.iter().flat_map(|wine| wine.measured).collect();
    let classes: Vec<u32> = wines.iter().map(|wine| wine.class).collect();
    Ok(Batch {
        rows,
        measured: engine.tensor(&[rows as u64, FEATURES as u64], &measured)?,
        classes: engine.tensor(&[rows as u64], &classes)?,
    })
}
