//! Memory of plain runs that a call on another stream reads.

use graphgrove_device::Device;
use graphgrove_storage::{Storage, Tensor};

use crate::Arg;
use crate::grove::Grove;
use crate::memory::Lease;

impl<D: Device> Grove<D> {
    /// After a call on another stream: memory of the plain pool is given back on the grove's own stream, as soon as its last handle is
    /// dropped, so that stream is ordered behind what reads it. (Memory of the caller's own is the caller's to keep.)
    pub(crate) fn come_back(&mut self, args: &[Arg<'_, D>]) {
        let is_plain = |storage: &&Storage| storage.is_owned_by::<Lease<D>>().is_ok_and(|is_plain| is_plain);
        let mut read = args.iter().filter_map(Arg::tensor).map(Tensor::storage).filter(is_plain).peekable();
        if read.peek().is_none() {
            return;
        }
        match self.replayer.enter(&self.stream) {
            Ok(()) => self.lent.clear(),
            // The call has run, whatever the device says of the order.
            Err(_) => self.lent.extend(read.cloned()),
        }
    }
}
