//! A language model of one layer with random weights, and its cache.

use graphgrove::{
    Args, Context, Device, Engine, Function, FunctionOptions, Layout, ParamSet, Result, Tensor,
};

use crate::kernels::{Kernels, Op};

/// Different tokens.
pub(crate) const VOCABULARY: u32 = 96;
/// Tokens of a sequence, the prompt included, for which the cache has room.
pub(crate) const CAPACITY: u32 = 48;
/// Sequences for which the cache has room.
pub(crate) const MOST_SEQUENCES: u32 = 8;
/// Numbers for a token.
const WIDTH: u32 = 32;
/// Numbers between the two matrices that follow the attention.
const HIDDEN: u32 = 512;

/// Places in the parameter set.
mod place {
    pub(super) const TABLE: usize = 0;
    pub(super) const QUERY: usize = 1;
    pub(super) const KEY: usize = 2;
    pub(super) const VALUE: usize = 3;
    pub(super) const UP: usize = 4;
    pub(super) const DOWN: usize = 5;
    pub(super) const KEYS: usize = 6;
    pub(super) const VALUES: usize = 7;
    pub(super) const LENGTH: usize = 8;
}

/// The model.
pub(crate) struct Model<D: Device> {
    /// `(tokens)` with the parameters -> `(next tokens)`. Its batch size is that of the tokens; the cache grows by one token.
    pub(crate) decode: Function<D>,
    /// Empties the cache.
    pub(crate) clear: Function<D>,
    /// The weights, the keys and values of the tokens so far, and how many those are.
    pub(crate) params: ParamSet,
}

impl<D: Device> Model<D> {
    pub(crate) fn new(engine: &Engine<D>, kernels: impl Kernels<D>, seed: u64) -> Result<Self> {
        // The cache is written in place, wherever the call runs.
        let options = FunctionOptions::new().mutates_params();
        Ok(Self {
            decode: engine.function_with("decode", options.clone(), move |cx| decode(&kernels, cx)),
            clear: engine.function_with("clear", options, |cx| {
                let length = cx.param(place::LENGTH)?.clone();
                cx.fill(&length, 0)?;
                Ok(Vec::new())
            }),
            params: params(engine, seed)?,
        })
    }
}

fn params<D: Device>(engine: &Engine<D>, seed: u64) -> Result<ParamSet> {
    let mut word = seed.wrapping_mul(2).wrapping_add(1);
    let mut weights = |rows: u32, columns: u32| {
        let size = 1.7 / (rows.min(columns) as f32).sqrt();
        let next = |_| {
            // A linear congruential generator (D. Knuth's MMIX); its high bits are good enough for weights.
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            size * ((word >> 40) as f32 / (1_u64 << 23) as f32 - 1.0)
        };
        let values: Vec<f32> = (0..rows * columns).map(next).collect();
        engine.tensor(&[rows.into(), columns.into()], &values)
    };
    let mut tensors = vec![weights(VOCABULARY, WIDTH)?];
    for (rows, columns) in [(WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH)]
    {
        tensors.push(weights(rows, columns)?);
    }
    let cache = vec![0.0_f32; (MOST_SEQUENCES * CAPACITY * WIDTH) as usize];
    for _ in [place::KEYS, place::VALUES] {
        let shape = [MOST_SEQUENCES, CAPACITY, WIDTH].map(u64::from);
        tensors.push(engine.tensor(&shape, &cache)?);
    }
    tensors.push(engine.tensor(&[1], &[0_u32])?);
    Ok(ParamSet::new(tensors)?)
}

fn decode<D: Device>(kernels: &impl Kernels<D>, cx: &mut Context<'_, D>) -> Result<Vec<Tensor>> {
    let tokens = cx.take(0)?;
    let sequences = tokens.layout().elements() as u32;
    let x = cx.empty(Layout::of::<f32>(&[sequences.into(), WIDTH.into()])?)?;
    let args =
        Args::new().read(tokens.address()?).read(cx.param(place::TABLE)?.address()?).write(x.address()?);
    kernels.run(cx, Op::Embed, args.scalar(sequences).scalar(WIDTH).scalar(VOCABULARY))?;
    drop(tokens);

    for (weight, cache) in [(place::KEY, place::KEYS), (place::VALUE, place::VALUES)] {
        let row = project(kernels, cx, &x, weight, false)?;
        let args = Args::new()
            .read(row.address()?)
            .read(cx.param(place::LENGTH)?.address()?)
            .read_write(cx.param(cache)?.address()?);
        kernels.run(cx, Op::Append, args.scalar(sequences).scalar(WIDTH).scalar(CAPACITY))?;
    }
    let query = project(kernels, cx, &x, place::QUERY, false)?;
    let args = Args::new()
        .read(query.address()?)
        .read(cx.param(place::KEYS)?.address()?)
        .read(cx.param(place::VALUES)?.address()?)
        .read(cx.param(place::LENGTH)?.address()?)
        .read_write(x.address()?);
    kernels.run(cx, Op::Attend, args.scalar(sequences).scalar(WIDTH).scalar(CAPACITY))?;
    drop(query);

    let hidden = project(kernels, cx, &x, place::UP, true)?;
    let more = project(kernels, cx, &hidden, place::DOWN, false)?;
    drop(hidden);
    let args = Args::new().read(more.address()?).read_write(x.address()?).scalar(sequences * WIDTH);
    kernels.run(cx, Op::Add, args)?;

    let next = cx.empty(Layout::of::<u32>(&[sequences.into()])?)?;
    let args = Args::new().read(x.address()?).read(cx.param(place::TABLE)?.address()?).write(next.address()?);
    kernels.run(cx, Op::Choose, args.scalar(sequences).scalar(WIDTH).scalar(VOCABULARY))?;
    let args = Args::new().read_write(cx.param(place::LENGTH)?.address()?);
    kernels.run(cx, Op::Advance, args)?;
    Ok(vec![next])
}

fn project<D: Device>(
    kernels: &impl Kernels<D>,
    cx: &mut Context<'_, D>,
    x: &Tensor,
    weight: usize,
    relu: bool,
) -> Result<Tensor> {
    let (b, k, n) = (x.shape()[0], x.shape()[1], cx.param(weight)?.shape()[1]);
    let y = cx.empty(Layout::of::<f32>(&[b, n])?)?;
    let args = Args::new().read(x.address()?).read(cx.param(weight)?.address()?).write(y.address()?);
    let args = args.scalar(b as u32).scalar(n as u32).scalar(k as u32).scalar(u32::from(relu));
    kernels.run(cx, Op::Project, args)?;
    Ok(y)
}
