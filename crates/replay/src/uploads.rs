//! Uploads whose source is said anew before each launch.

use graphgrove_device::{Device, DevicePtr, NodeId};

use crate::{Error, NodeKey, Replayer};

impl<D: Device> Replayer<D> {
    /// Makes an upload that a function has captured read from other host memory, `offset` bytes from its start, from the next launch of
    /// the node on. `upload` is the captured node, and `to` where it copies to.
    ///
    /// It is one driver call, and no check is old by it. For numbers that the host brings to each call and that are no inputs: the state of a
    /// random generator.
    ///
    /// # Errors
    /// [`Error::UnknownNode`], [`Error::Device`]; the node is as before then.
    pub fn read_from(
        &mut self,
        node: NodeKey,
        upload: NodeId,
        to: DevicePtr,
        from: &D::HostBuffer,
        offset: usize,
    ) -> Result<(), Error> {
        let known = self.nodes.get_mut(node).ok_or(Error::UnknownNode { node })?;
        Ok(self.device.patch_upload(&mut known.exec, upload, to, from, offset)?)
    }
}
