//! What a function sees while it runs.

use graphgrove_device::{Args, Device, LaunchDims, StreamHandle};
use graphgrove_pool::pool::Owner;
use graphgrove_replay::Recorder;
use graphgrove_storage::{Layout, Tensor};

use crate::draws::CallDraws;
use crate::effects::{Effects, InputOf};
use crate::kit::Kit;
use crate::memory::Memory;
use crate::notes::NOTE_BYTES;
use crate::side_stream::Forks;
use crate::{Error, Generator, Missing, Random, Result};

/// What a function sees while it runs: its inputs, a stream to enqueue work on, and memory for what it makes.
///
/// The same function runs in warm-up, in recording and plainly, so it may not read anything back to the host, wait for the
/// device, or do anything that has to happen again at each call but is not enqueued. An input that it drops, and any tensor
/// that it allocates and drops, is free for its next allocation.
///
/// Beside memory and work on the call's stream it offers [draws](Self::random) and [side streams](Self::fork).
pub struct Context<'a, D: Device> {
    pub(crate) function: &'a str,
    pub(crate) stream: D::Stream,
    pub(crate) recorder: Recorder<'a, D>,
    pub(crate) memory: Memory<'a, D>,
    /// The tensors among the inputs, saved ones first, and then the parameters.
    pub(crate) inputs: Vec<Option<Tensor>>,
    pub(crate) values: &'a [Option<u64>],
    pub(crate) hosts: &'a [Option<&'a D::HostBuffer>],
    /// How many inputs are what the forward has saved.
    pub(crate) saved: usize,
    /// Where the parameters begin among the inputs.
    pub(crate) params: usize,
    /// What is to be saved for the backward.
    pub(crate) saves: Vec<Tensor>,
    pub(crate) kit: &'a Kit<D>,
    pub(crate) device: &'a D,
    pub(crate) draws: CallDraws<D>,
    pub(crate) effects: &'a mut Effects,
    /// Behind the recorder: a capture that is thrown away is over before its streams are joined.
    pub(crate) forks: Forks<'a, D>,
}

impl<D: Device> Context<'_, D> {
    /// The stream that work has to be enqueued on. Work that goes there past this context belongs into [`foreign`](Self::foreign).
    #[must_use]
    pub fn stream(&self) -> &D::Stream {
        self.note_raw_stream();
        &self.stream
    }

    /// An input.
    ///
    /// # Errors
    /// [`Error::NoInput`] if there is no tensor at that place, or it was taken.
    pub fn input(&self, index: usize) -> Result<&Tensor> {
        let at = self.saved + index;
        let found = if at < self.params { self.inputs.get(at).and_then(Option::as_ref) } else { None };
        found.ok_or_else(|| self.missing_input("input", index))
    }

    /// Takes an input: dropping it gives its memory back, if nobody else holds it.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn take(&mut self, index: usize) -> Result<Tensor> {
        let at = self.saved + index;
        let taken = if at < self.params { self.inputs.get_mut(at).and_then(Option::take) } else { None };
        taken.ok_or_else(|| self.missing_input("input", index))
    }

    /// A parameter.
    ///
    /// # Errors
    /// [`Error::NoInput`]
    pub fn param(&self, index: usize) -> Result<&Tensor> {
        self.at("parameter", self.params + index, index, self.inputs.len())
    }

    /// What the forward has saved, in a backward.
    ///
    /// # Errors
    /// [`Error::NoInput`] if there is no such tensor, or it was taken.
    pub fn saved(&self, index: usize) -> Result<&Tensor> {
        self.at("saved tensor", index, index, self.saved)
    }

    /// Takes what the forward has saved: dropping it gives its memory back.
    ///
    /// # Errors
    /// As [`saved`](Self::saved).
    pub fn take_saved(&mut self, index: usize) -> Result<Tensor> {
        let taken = if index < self.saved { self.inputs.get_mut(index).and_then(Option::take) } else { None };
        taken.ok_or_else(|| self.missing("saved tensor", index, self.saved))
    }

    /// The value of an input that is no tensor.
    ///
    /// # Errors
    /// [`Error::NoInput`]
    pub fn value(&self, index: usize) -> Result<u64> {
        let value = self.values.get(self.saved + index).copied().flatten();
        value.ok_or_else(|| self.missing_input("value", index))
    }

    /// A tensor of undefined contents, without gaps.
    ///
    /// # Errors
    /// [`Error::Pool`] if there is no room.
    pub fn empty(&mut self, layout: Layout) -> Result<Tensor> {
        if layout.is_empty() {
            return Ok(Tensor::empty(layout)?);
        }
        self.allocate(layout, Owner::Output, "tensor")
    }

    pub(crate) fn allocate(&mut self, layout: Layout, owner: Owner, label: &'static str) -> Result<Tensor> {
        let storage = self.memory.allocate(layout.span_bytes(), owner, label)?;
        self.effects.note_own(storage.base()?, storage.bytes()?);
        Ok(Tensor::new(storage, layout, 0)?)
    }

    /// Enqueues a kernel.
    ///
    /// # Errors
    /// [`Error::UndeclaredWrite`] for one that writes to an input or parameter of which the function does not
    /// [say so](crate::FunctionOptions::mutates); [`Error::Device`].
    pub fn launch(&mut self, kernel: &D::Kernel, dims: LaunchDims, args: &Args) -> Result<()> {
        let stream = self.stream.clone();
        self.launch_on(&stream, kernel, dims, args)
    }

    /// Lets other code, such as a library of matrix products, enqueue work on the [stream](Self::stream) by itself.
    ///
    /// Whoever enqueues without this says nothing to the engine: it takes an input that only such work reads for one whose address
    /// stands nowhere, and every recording of the call fails because it finds work there that it does not know.
    pub fn foreign<T>(&mut self, enqueue: impl FnOnce(&D::Stream) -> T) -> T {
        self.recorder.foreign(enqueue)
    }

    /// Enqueues a copy of all bytes of `from`, which may have no gaps, to where `to` begins.
    ///
    /// # Errors
    /// [`Error::CopyMisfit`] for a `from` with gaps or of more bytes than `to`; [`Error::UndeclaredWrite`]; [`Error::Device`],
    /// [`Error::Storage`] for a stale tensor.
    pub fn copy(&mut self, to: &Tensor, from: &Tensor) -> Result<()> {
        let stream = self.stream.clone();
        self.copy_on(&stream, to, from)
    }

    /// Enqueues a fill of all bytes of a tensor, its gaps included.
    ///
    /// # Errors
    /// [`Error::UndeclaredWrite`], [`Error::Device`], [`Error::Storage`] for a stale tensor.
    pub fn fill(&mut self, tensor: &Tensor, value: u8) -> Result<()> {
        let stream = self.stream.clone();
        self.fill_on(&stream, tensor, value)
    }

    /// Enqueues a copy of a host input to where `to` begins, as many bytes as `to` has.
    ///
    /// # Errors
    /// [`Error::NoInput`] for an input that is no host memory, [`Error::UndeclaredWrite`], [`Error::Device`], [`Error::Storage`].
    pub fn upload(&mut self, to: &Tensor, index: usize) -> Result<()> {
        let stream = self.stream.clone();
        self.upload_on(&stream, to, index)
    }

    /// Takes `draws` draws from the engine's generator, of 128 bits each, for kernels on the call's stream.
    ///
    /// Every call takes them once, by whichever way it runs. Their number is recorded: it may depend on shapes and values, as the rest of
    /// the function may. Kernels that draw from one generator share a copy of its state, so a second request costs nothing.
    ///
    /// # Errors
    /// [`Error::Pool`] if there is no room, [`Error::Device`]
    pub fn random(&mut self, draws: u64) -> Result<Random> {
        let generator = self.kit.generator.clone();
        self.random_from(&generator, draws)
    }

    /// Takes draws from [another generator](crate::Engine::new_generator).
    ///
    /// # Errors
    /// As [`random`](Self::random), and [`Error::ForeignHandle`] for a generator of another engine.
    pub fn random_from(&mut self, generator: &Generator, draws: u64) -> Result<Random> {
        let stream = self.stream.clone();
        self.random_on(&stream, generator, draws)
    }

    /// Saves a tensor for the backward of this call. It need not be returned, and then nobody but the backward holds it.
    pub fn save(&mut self, tensor: &Tensor) {
        self.saves.push(tensor.clone());
    }

    /// The error of a function that cannot go on: `return Err(cx.fail("no such mode"))`. The call fails with it, however it runs.
    #[must_use]
    pub fn fail(&self, why: impl Into<String>) -> Error {
        Error::Failed { function: self.function.to_owned(), why: why.into() }
    }

    pub(crate) fn launch_on(
        &mut self,
        stream: &D::Stream,
        kernel: &D::Kernel,
        dims: LaunchDims,
        args: &Args,
    ) -> Result<()> {
        self.effects.note_kernel(args).map_err(|input| self.undeclared(input))?;
        self.recorder.launch(stream, kernel, dims, args)?;
        Ok(())
    }

    pub(crate) fn copy_on(&mut self, stream: &D::Stream, to: &Tensor, from: &Tensor) -> Result<()> {
        let (bytes, room) = (from.layout().span_bytes(), to.layout().span_bytes());
        let has_gaps = !from.layout().is_contiguous();
        if has_gaps || bytes > room {
            let function = self.function.to_owned();
            return Err(Error::CopyMisfit { function, from: bytes, has_gaps, to: room });
        }
        if bytes == 0 {
            return Ok(());
        }
        let to = to.address()?;
        self.effects.note_write(to).map_err(|input| self.undeclared(input))?;
        self.recorder.copy(stream, to, from.address()?, bytes)?;
        Ok(())
    }

    pub(crate) fn fill_on(&mut self, stream: &D::Stream, tensor: &Tensor, value: u8) -> Result<()> {
        let bytes = tensor.layout().span_bytes();
        if bytes > 0 {
            let to = tensor.address()?;
            self.effects.note_write(to).map_err(|input| self.undeclared(input))?;
            self.recorder.fill(stream, to, value, bytes)?;
        }
        Ok(())
    }

    pub(crate) fn upload_on(&mut self, stream: &D::Stream, to: &Tensor, index: usize) -> Result<()> {
        let host = self.hosts.get(self.saved + index).copied().flatten();
        let host = host.ok_or_else(|| self.missing_input("host input", index))?;
        let bytes = to.layout().span_bytes() as usize;
        let to = to.address()?;
        self.effects.note_write(to).map_err(|input| self.undeclared(input))?;
        self.recorder.upload(stream, to, host, 0, bytes)?;
        Ok(())
    }

    /// Takes draws for work on a stream, which gets the generator's state by a copy in front of it.
    pub(crate) fn random_on(
        &mut self,
        stream: &D::Stream,
        generator: &Generator,
        draws: u64,
    ) -> Result<Random> {
        let mut taken = std::mem::take(&mut self.draws);
        let (kit, device) = (self.kit, self.device);
        let random = taken.take(kit, device, stream, generator, draws, |note| {
            let layout = Layout::of::<u64>(&[2])?;
            let state = self.allocate(layout, Owner::Staging, "generator state")?;
            let to = state.address()?;
            if stream.id() != self.stream.id() {
                self.forks.declare(to, stream)?;
            }
            let node = self.recorder.upload(stream, to, &note.page, note.offset, NOTE_BYTES)?;
            Ok((state, node))
        });
        self.draws = taken;
        random
    }

    /// Work may be enqueued of which nobody tells.
    pub(crate) fn note_raw_stream(&self) {
        self.effects.note_unknown();
    }

    fn at(&self, what: &'static str, at: usize, index: usize, end: usize) -> Result<&Tensor> {
        let found = if at < end { self.inputs.get(at).and_then(Option::as_ref) } else { None };
        found.ok_or_else(|| self.missing(what, index, end - (at - index)))
    }

    fn undeclared(&self, InputOf { what, index }: InputOf) -> Error {
        Error::UndeclaredWrite { function: self.function.to_owned(), what, index }
    }

    fn missing(&self, what: &'static str, index: usize, count: usize) -> Error {
        let why = if index < count { Missing::Taken } else { Missing::Past { count } };
        Error::NoInput { function: self.function.to_owned(), what, index, why }
    }

    /// Why there is no input of some kind at a place.
    fn missing_input(&self, what: &'static str, index: usize) -> Error {
        let (at, count) = (self.saved + index, self.params - self.saved);
        let is_any = |of: bool, kind| of.then_some(Missing::Kind { kind });
        let of_another_kind = is_any(self.values.get(at).is_some_and(Option::is_some), "a value")
            .or_else(|| is_any(self.hosts.get(at).is_some_and(Option::is_some), "host memory"))
            .or_else(|| is_any(self.inputs.get(at).is_some_and(Option::is_some), "a tensor"));
        match of_another_kind.filter(|_| index < count) {
            Some(why) => Error::NoInput { function: self.function.to_owned(), what, index, why },
            None => self.missing(what, index, count),
        }
    }
}
