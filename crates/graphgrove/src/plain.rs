//! Plain runs, outside of every pool that is shared.

use graphgrove_device::Device;
use graphgrove_replay::{CallOutputs, Recorder, StagePlan};
use graphgrove_storage::Tensor;
use graphgrove_tree::EagerReason;

use crate::captured::{Ran, Stage};
use crate::describe::{Described, tensors};
use crate::effects::Effects;
use crate::grove::{Done, Grove, Request};
use crate::memory::Memory;
use crate::outputs::Saved;
use crate::{Arg, How, Outputs, Result};

impl<D: Device> Grove<D> {
    /// Runs a call plainly because of something that the tree does not know; for the mode of the function if there is no reason.
    pub(crate) fn run_plainly(
        &mut self,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        described: &Described,
        why: Option<String>,
    ) -> Result<Done> {
        if let Some(why) = why {
            self.skip(request, &why)?;
        }
        self.run_eagerly(request, args, described, &EagerReason::Unpoolable)
    }

    /// Runs a call plainly and tells the tree.
    pub(crate) fn run_eagerly(
        &mut self,
        request: &Request<'_, D>,
        args: &mut [Arg<'_, D>],
        described: &Described,
        reason: &EagerReason,
    ) -> Result<Done> {
        let call = Self::tree_call(request, described);
        let tensors = tensors(args, request.params);
        let (device, stream) = (self.device.clone(), self.stream.clone());
        self.replayer.enter(&stream)?;
        self.bridge(request.stream, &stream)?;
        let recorder =
            Recorder::rehearse(&*device, &stream, StagePlan::nothing(tensors.len()), &tensors, |_| {
                Err(crate::Error::ShutDown)
            })?;
        let values = Self::values(args);
        let hosts: Vec<Option<&D::HostBuffer>> = args.iter().map(Arg::host).collect();
        let memory = Memory::Plain(&self.plain);
        let stage = Stage { device: &*device, recorder, memory, values: &values, hosts: &hosts };
        let mut effects = Effects::default();
        let Ran { recorder, mut returned, mut saves, taken, .. } =
            Self::run_body(request, stage, &mut effects)?;
        // A view of nothing would go stale with what it is a view of.
        for tensor in returned.iter_mut().chain(&mut saves).filter(|tensor| tensor.layout().is_empty()) {
            *tensor = Tensor::empty(tensor.layout().clone())?;
        }
        recorder.rehearsed()?;
        self.bridge(&stream, request.stream)?;
        let token = self.tree.ran_eagerly(&call, reason)?;
        taken.commit(request.kit, &*device, request.stream);
        self.stats.eager += 1;
        self.note_ran(request, How::Eager, None);
        let count = returned.len();
        let inner = CallOutputs::Each(returned.into_iter().map(Some).collect());
        let saved = if saves.is_empty() { Saved::Nothing } else { Saved::Tensors(saves) };
        Ok(Done { outputs: Outputs { inner, returned: count }, saved, token, grove: self.serial() })
    }
}
