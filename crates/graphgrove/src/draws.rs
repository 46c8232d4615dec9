//! The draws of a call: what its kernels are given, and what a recording of it has to be told before each launch.

use graphgrove_device::{Device, DevicePtr, NodeId as GraphNode, StreamHandle, StreamId};
use graphgrove_storage::Tensor;
use smallvec::SmallVec;

use crate::generator::{Generator, Turn};
use crate::kit::Kit;
use crate::notes::Note;
use crate::{Error, Result};

/// What a kernel needs to draw: where the generator's seed and offset are, and which of the call's draws are its own.
///
/// Draw `i` of `n` is [`draw(seed, offset + base + i)`](crate::philox::draw), 128 bits, with `seed` and `offset` as the kernel finds them in
/// device memory and `base` as an argument. The base is a constant of the recording, and seed and offset are another pair at each call, so
/// a kernel that takes them from anywhere else repeats itself.
#[derive(Clone, Debug)]
pub struct Random {
    pub(crate) state: Tensor,
    pub(crate) base: u64,
}

impl Random {
    /// Where the seed is, and 8 bytes behind it the offset, both `u64`. Kernels only read them.
    ///
    /// # Errors
    /// [`Error::Storage`] once the value is gone.
    pub fn address(&self) -> Result<DevicePtr> {
        Ok(self.state.address()?)
    }

    /// How many draws of the generator the call took before these.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Seed and offset as a tensor of two `u64`. A backward that has to draw what its forward drew is given it by
    /// [`save`](crate::Context::save), and uses the same base.
    #[must_use]
    pub const fn state(&self) -> &Tensor {
        &self.state
    }
}

/// Where a call's work has put the state of a generator: each stream has a copy of its own, so that no kernel has to wait for another
/// stream's.
struct Place {
    stream: StreamId,
    state: Tensor,
}

/// What a call has drawn from one generator.
struct Drawing<D: Device> {
    generator: Generator,
    turn: Turn,
    draws: u64,
    note: Note<D>,
    places: Vec<Place>,
    copies: Vec<NoteCopy>,
}

/// The draws of a call that is running.
pub(crate) struct CallDraws<D: Device>(Vec<Drawing<D>>);

/// A node of a recording that copies the note of a call to the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoteCopy {
    pub(crate) node: GraphNode,
    pub(crate) to: DevicePtr,
}

/// What a recording draws from one generator.
#[derive(Debug)]
pub(crate) struct RecordedDraws {
    pub(crate) generator: Generator,
    pub(crate) draws: u64,
    pub(crate) copies: Vec<NoteCopy>,
}

/// Draws that are taken once the call has succeeded.
#[must_use = "a call that draws and takes nothing repeats itself"]
pub(crate) struct Taken(SmallVec<[(Generator, Turn, u64); 2]>);

impl<D: Device> Default for CallDraws<D> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<D: Device> CallDraws<D> {
    /// Takes draws for work on a stream. `put` enqueues the copy of a note to memory of its own there.
    pub(crate) fn take(
        &mut self,
        kit: &Kit<D>,
        device: &D,
        stream: &D::Stream,
        generator: &Generator,
        draws: u64,
        put: impl FnOnce(&Note<D>) -> Result<(Tensor, Option<GraphNode>)>,
    ) -> Result<Random> {
        if !generator.is_of(&kit.engine) {
            return Err(Error::ForeignHandle { what: "generator" });
        }
        let known = self.0.iter().position(|drawing| drawing.generator.is_same(generator));
        let at = match known {
            Some(at) => at,
            None => {
                let turn = generator.turn();
                let note = kit.notes.lock().write(device, turn.state)?;
                let generator = generator.clone();
                self.0.push(Drawing {
                    generator,
                    turn,
                    draws: 0,
                    note,
                    places: Vec::new(),
                    copies: Vec::new(),
                });
                self.0.len() - 1
            }
        };
        let Some(drawing) = self.0.get_mut(at) else { return Err(Error::ShutDown) };
        let known = drawing.places.iter().find(|place| place.stream == stream.id());
        let state = match known {
            Some(place) => place.state.clone(),
            None => {
                let (state, node) = put(&drawing.note)?;
                if let Some(node) = node {
                    drawing.copies.push(NoteCopy { node, to: state.address()? });
                }
                drawing.places.push(Place { stream: stream.id(), state: state.clone() });
                state
            }
        };
        let base = drawing.draws;
        drawing.draws = base.wrapping_add(draws);
        Ok(Random { state, base })
    }

    /// What a recording of the call has to be told before each launch.
    pub(crate) fn recorded(&self) -> Box<[RecordedDraws]> {
        let recorded = |drawing: &Drawing<D>| RecordedDraws {
            generator: drawing.generator.clone(),
            draws: drawing.draws,
            copies: drawing.copies.clone(),
        };
        self.0.iter().map(recorded).collect()
    }

    /// Lets go of the states, and says what is to be taken once the call has succeeded.
    pub(crate) fn end(self) -> Taken {
        let draws = self.0.into_iter().map(|drawing| (drawing.generator, drawing.turn, drawing.draws));
        Taken(draws.collect())
    }
}

impl Taken {
    /// Gives a recording the notes of its next launch: `tell` writes where a note is into the exec.
    pub(crate) fn by_replay<D: Device>(
        kit: &Kit<D>,
        device: &D,
        recorded: &[RecordedDraws],
        mut tell: impl FnMut(&NoteCopy, &Note<D>) -> Result<()>,
    ) -> Result<Self> {
        let mut draws = SmallVec::new();
        for RecordedDraws { generator, draws: count, copies } in recorded {
            let turn = generator.turn();
            let note = kit.notes.lock().write(device, turn.state)?;
            copies.iter().try_for_each(|copy| tell(copy, &note))?;
            draws.push((generator.clone(), turn, *count));
        }
        Ok(Self(draws))
    }

    /// The call has succeeded, and its work was enqueued on the stream or before what comes there.
    pub(crate) fn commit<D: Device>(self, kit: &Kit<D>, device: &D, stream: &D::Stream) {
        for (generator, turn, draws) in &self.0 {
            generator.take(turn, *draws);
        }
        if !self.0.is_empty() {
            kit.notes.lock().passed(device, stream);
        }
    }
}
