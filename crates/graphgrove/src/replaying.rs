//! Replays of nodes that were not predicted, or that draw.

use graphgrove_device::Device;
use graphgrove_replay::{Call, Checked, Replayed};
use graphgrove_tree::NodeId;

use crate::draws::Taken;
use crate::grove::{Grove, Request};
use crate::{Arg, Result};

impl<D: Device> Grove<D> {
    /// Replays a node that the tree has picked, or says why that cannot be.
    pub(crate) fn replay(
        &mut self,
        request: &Request<'_, D>,
        args: &[Arg<'_, D>],
        node: NodeId,
    ) -> Result<std::result::Result<Replayed, String>> {
        let parent = self.tree.node(node).and_then(graphgrove_tree::Node::parent);
        let call = self.replay_call(request, parent, args);
        let key = self.nodes.get(node).and_then(|held| held.key);
        Ok(match key.map(|key| self.replayer.check(key, &call)) {
            Some(Ok(checked)) => Ok(self.launch_drawing(request, node, checked, &call)?),
            Some(Err(mismatch)) => Err(mismatch.to_string()),
            None => Err("its recording is gone".to_owned()),
        })
    }

    /// Lets the pool apply what was dropped before the first replay behind other work.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle_pool(&self) {
        self.pool.settle();
    }

    /// Launches a node that may draw.
    #[cold]
    pub(crate) fn launch_drawing(
        &mut self,
        request: &Request<'_, D>,
        node: NodeId,
        checked: Checked<'_, D, Arg<'_, D>>,
        call: &Call<'_, D, Arg<'_, D>>,
    ) -> Result<Replayed> {
        if !self.pool_knows {
            self.settle_pool();
        }
        let draws = self.nodes.get(node).map(|held| &*held.draws).unwrap_or_default();
        let (replayer, key) = (&mut self.replayer, checked.node());
        let taken = Taken::by_replay(request.kit, &*self.device, draws, |copy, note| {
            Ok(replayer.read_from(key, copy.node, copy.to, &note.page, note.offset)?)
        })?;
        let replayed = self.replayer.launch(checked, call)?;
        taken.commit(request.kit, &*self.device, request.stream);
        Ok(replayed)
    }
}
