//! Work on a second stream inside of a function.

use std::cell::Cell;

use graphgrove_device::{Args, Device, DevicePtr, LaunchDims};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::Pool;
use graphgrove_storage::{Layout, Tensor};

use crate::generator::Generator;
use crate::kit::Kit;
use crate::memory::Memory;
use crate::{Context, Error, Random, Result};

/// A stream beside that of the call, from a [fork](Context::fork) to its [join](Context::join).
///
/// Dropping it joins nothing: the call then fails with [`Error::Unjoined`].
#[derive(Debug)]
#[must_use = "a side stream that is not joined makes the call fail"]
pub struct SideStream {
    number: u64,
}

/// Streams that no call uses, and how many forks there have been.
pub(crate) struct SideStreams<D: Device> {
    idle: Vec<D::Stream>,
    forks: u64,
}

impl<D: Device> Default for SideStreams<D> {
    fn default() -> Self {
        Self { idle: Vec::new(), forks: 0 }
    }
}

/// The side streams of a call that is running. Dropping it joins those that are open, as after an error: what is enqueued next on the
/// call's stream, which may get their memory, comes behind them all the same.
pub(crate) struct Forks<'a, D: Device> {
    kit: &'a Kit<D>,
    main: D::Stream,
    pool: Pool<D>,
    /// Whether the call was given memory of a pool that knows nothing of side streams.
    spilled: Option<&'a Cell<bool>>,
    /// The (fork, stream) pairs that are not joined yet.
    open: Vec<(u64, D::Stream)>,
}

impl<'a, D: Device> Forks<'a, D> {
    pub(crate) fn new(kit: &'a Kit<D>, main: &D::Stream, memory: &Memory<'a, D>) -> Self {
        let (pool, spilled) = (memory.pool().clone(), memory.spilled());
        Self { kit, main: main.clone(), pool, spilled, open: Vec::new() }
    }

    fn fork(&mut self) -> Result<SideStream> {
        let (number, idle) = {
            let mut streams = self.kit.side_streams.lock();
            streams.forks += 1;
            (streams.forks, streams.idle.pop())
        };
        let stream = idle.map_or_else(|| self.pool.device().create_stream(), Ok)?;
        let ordered = self.pool.order(&self.main, &stream);
        if let Err(error) = ordered {
            self.kit.side_streams.lock().idle.push(stream);
            return Err(error.into());
        }
        self.open.push((number, stream));
        Ok(SideStream { number })
    }

    fn join(&mut self, side: &SideStream) -> Result<()> {
        let stream = self.stream(side)?;
        self.pool.order(&stream, &self.main)?;
        self.open.retain(|(number, _)| *number != side.number);
        self.kit.side_streams.lock().idle.push(stream);
        Ok(())
    }

    fn stream(&self, side: &SideStream) -> Result<D::Stream> {
        let open = self.open.iter().find(|(number, _)| *number == side.number);
        let foreign = Error::ForeignHandle { what: "side stream" };
        Ok(open.ok_or(foreign)?.1.clone())
    }

    /// How many side streams are not joined.
    pub(crate) fn unjoined(&self) -> usize {
        self.open.len()
    }

    /// Declares that work with the memory at an address comes on a side stream. Memory that the call was given since the stream was
    /// last ordered behind the call's own may still be in use there, by whoever had it before: then the side stream waits.
    pub(crate) fn declare(&self, at: DevicePtr, side: &D::Stream) -> Result<()> {
        match self.pool.used_at(at, side) {
            // It may have been handed out by the other pool since the side stream waited for the call's.
            Ok(false) if self.spilled.is_some_and(Cell::get) => Ok(self.pool.order(&self.main, side)?),
            Ok(_) => Ok(()),
            Err(PoolError::Unordered { .. }) => {
                self.pool.order(&self.main, side)?;
                self.pool.used_at(at, side)?;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// As [`declare`](Self::declare), for all that a kernel may reach: a word in a struct may be an address.
    fn declare_all(&self, args: &Args, side: &D::Stream) -> Result<()> {
        use graphgrove_device::ArgKind;
        for field in args.fields().iter().filter(|field| field.kind != ArgKind::Scalar) {
            let first = field.offset as usize / 8;
            let words = args.words().get(first..first + (field.bytes as usize).div_ceil(8));
            for word in words.unwrap_or_default() {
                self.declare(DevicePtr::new(*word), side)?;
            }
        }
        Ok(())
    }
}

impl<D: Device> Drop for Forks<'_, D> {
    fn drop(&mut self) {
        if !self.open.is_empty() {
            // Only a call that fails leaves a stream unjoined. Its inputs are read once more, if it runs plainly instead.
            self.pool.abandon();
        }
        for (_, stream) in std::mem::take(&mut self.open) {
            // A stream that cannot be joined is not lent again; the device is broken then, and says so at the next call.
            if self.pool.order(&stream, &self.main).is_ok() {
                self.kit.side_streams.lock().idle.push(stream);
            }
        }
    }
}

impl<'a, D: Device> Context<'a, D> {
    /// A stream beside that of the call: it waits for all that the call's stream was given so far, and what comes on either of them from
    /// here on may run at the same time.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use graphgrove::{Args, Engine, LaunchDims, args};
    /// # use graphgrove_sim::{SimDevice, kernels};
    /// # let device = Arc::new(SimDevice::new());
    /// # let engine = Engine::new(Arc::clone(&device))?;
    /// # let square = kernels::map::<f32>(&device, "square", |x| x * x);
    /// # let double = kernels::map::<f32>(&device, "double", |x| x + x);
    /// let both = engine.function("both", move |cx| {
    ///     let x = cx.take(0)?;
    ///     // What is allocated before the fork can be used on both sides without waiting.
    ///     let (squares, doubles) = (cx.empty(x.layout().clone())?, cx.empty(x.layout().clone())?);
    ///     let into = |out: &graphgrove::Tensor| Ok::<_, graphgrove::Error>(Args::new().read(x.address()?).write(out.address()?).scalar(4_u32));
    ///     let side = cx.fork()?;
    ///     cx.on(&side)?.launch(&square, LaunchDims::for_elements(4), &into(&squares)?)?;
    ///     cx.launch(&double, LaunchDims::for_elements(4), &into(&doubles)?)?;
    ///     cx.join(side)?;
    ///     Ok(vec![squares, doubles])
    /// });
    /// let x = engine.tensor(&[4], &[1.0_f32, 2.0, 3.0, 4.0])?;
    /// for _ in 0..4 {
    ///     let [squares, doubles] = both.call(args![&x])?.into_array()?;
    ///     assert_eq!(engine.read::<f32>(&squares)?, [1.0, 4.0, 9.0, 16.0]);
    ///     assert_eq!(engine.read::<f32>(&doubles)?, [2.0, 4.0, 6.0, 8.0]);
    /// }
    /// device.verdict().expect("no race");
    /// # Ok::<(), graphgrove::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Pool`]
    pub fn fork(&mut self) -> Result<SideStream> {
        self.forks.fork()
    }

    /// What comes on the call's stream from here on waits for all that the side stream was given.
    ///
    /// # Errors
    /// [`Error::ForeignHandle`] for a side stream of another call; [`Error::Device`], [`Error::Pool`]. It counts as not joined then.
    pub fn join(&mut self, side: SideStream) -> Result<()> {
        self.forks.join(&side)
    }

    /// The context for work on a side stream.
    ///
    /// # Errors
    /// [`Error::ForeignHandle`] for a side stream of another call.
    pub fn on<'c>(&'c mut self, side: &SideStream) -> Result<OnSide<'c, 'a, D>> {
        let stream = self.forks.stream(side)?;
        Ok(OnSide { context: self, stream })
    }
}

/// A context whose work comes on a side stream.
///
/// Memory that is dropped while the side stream may use it goes to nobody else before the stream is joined: the pool is told of each
/// address in the arguments of what is enqueued here. Whoever enqueues work by way of [`stream`](Self::stream) says which tensors it uses.
pub struct OnSide<'c, 'a, D: Device> {
    context: &'c mut Context<'a, D>,
    stream: D::Stream,
}

impl<D: Device> OnSide<'_, '_, D> {
    /// The side stream itself.
    #[must_use]
    pub fn stream(&self) -> &D::Stream {
        self.context.note_raw_stream();
        &self.stream
    }

    /// Makes the side stream wait for all that the call's stream was given so far.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Pool`]
    pub fn catch_up(&mut self) -> Result<()> {
        let forks = &self.context.forks;
        Ok(forks.pool.order(&forks.main, &self.stream)?)
    }

    /// Says that work with a tensor comes on the side stream, which is enqueued by way of [`stream`](Self::stream).
    ///
    /// # Errors
    /// [`Error::Storage`] for a stale tensor; [`Error::Device`], [`Error::Pool`]
    pub fn uses(&mut self, tensor: &Tensor) -> Result<()> {
        self.context.forks.declare(tensor.address()?, &self.stream)
    }

    /// A tensor as by [`Context::empty`], to be used on the side stream first. The stream waits for what the call's stream was given so far,
    /// since its memory may have been in use there; one that is allocated before the fork need not be waited for.
    ///
    /// # Errors
    /// As [`Context::empty`], and [`Error::Device`].
    pub fn empty(&mut self, layout: Layout) -> Result<Tensor> {
        let tensor = self.context.empty(layout)?;
        self.uses(&tensor)?;
        Ok(tensor)
    }

    /// Enqueues a kernel.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Pool`]
    pub fn launch(&mut self, kernel: &D::Kernel, dims: LaunchDims, args: &Args) -> Result<()> {
        self.context.forks.declare_all(args, &self.stream)?;
        self.context.launch_on(&self.stream, kernel, dims, args)
    }

    /// Enqueues a copy, as [`Context::copy`].
    ///
    /// # Errors
    /// As [`Context::copy`], and [`Error::Pool`].
    pub fn copy(&mut self, to: &Tensor, from: &Tensor) -> Result<()> {
        self.uses(to)?;
        self.uses(from)?;
        self.context.copy_on(&self.stream, to, from)
    }

    /// Enqueues a fill, as [`Context::fill`].
    ///
    /// # Errors
    /// As [`Context::fill`], and [`Error::Pool`].
    pub fn fill(&mut self, tensor: &Tensor, value: u8) -> Result<()> {
        self.uses(tensor)?;
        self.context.fill_on(&self.stream, tensor, value)
    }

    /// Enqueues a copy from host memory, as [`Context::upload`].
    ///
    /// # Errors
    /// As [`Context::upload`], and [`Error::Pool`].
    pub fn upload(&mut self, to: &Tensor, index: usize) -> Result<()> {
        self.uses(to)?;
        self.context.upload_on(&self.stream, to, index)
    }

    /// Takes draws for work on the side stream, as [`Context::random`].
    ///
    /// # Errors
    /// As [`Context::random`].
    pub fn random(&mut self, draws: u64) -> Result<Random> {
        let generator = self.context.kit.generator.clone();
        self.random_from(&generator, draws)
    }

    /// Takes draws of another generator for work on the side stream, as [`Context::random_from`].
    ///
    /// # Errors
    /// As [`Context::random_from`].
    pub fn random_from(&mut self, generator: &Generator, draws: u64) -> Result<Random> {
        self.context.random_on(&self.stream, generator, draws)
    }
}
