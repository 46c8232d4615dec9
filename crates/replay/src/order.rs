//! Launches that share memory run one after the other, whatever the streams.

use graphgrove_device::{Device, DeviceError, StreamHandle, StreamId, Streams};

/// The order of all launches of one set of nodes.
///
/// Launches on one stream are ordered by it. One on another stream than the last waits for that by an event, and so does the
/// next launch for every use elsewhere that was declared. Nothing ever waits on the host.
pub(crate) struct Order<D: Device> {
    last: Option<Last<D>>,
    /// Uses that the next launch has to wait for.
    uses: Vec<<D as Streams>::Event>,
    /// Events that nothing waits to be enqueued for any more.
    spare: Vec<<D as Streams>::Event>,
}

struct Last<D: Device> {
    id: StreamId,
    stream: <D as Streams>::Stream,
}

impl<D: Device> Order<D> {
    pub(crate) const fn new() -> Self {
        Self { last: None, uses: Vec::new(), spare: Vec::new() }
    }

    /// Orders what is enqueued next on `stream` behind all that came before.
    ///
    /// An error leaves the order as it was; waits that were enqueued before it do no harm.
    #[inline]
    pub(crate) fn enter(&mut self, device: &D, stream: &D::Stream) -> Result<(), DeviceError> {
        match &self.last {
            Some(last) if last.id == stream.id() && self.uses.is_empty() => Ok(()),
            _ => self.wait(device, stream),
        }
    }

    #[cold]
    fn wait(&mut self, device: &D, stream: &D::Stream) -> Result<(), DeviceError> {
        for event in &self.uses {
            device.wait_event(stream, event)?;
        }
        if let Some(last) = self.last.as_ref().filter(|last| last.id != stream.id()) {
            let event = self.spare.pop().map_or_else(|| device.create_event(), Ok)?;
            let ordered =
                device.record_event(&event, &last.stream).and_then(|()| device.wait_event(stream, &event));
            // A wait refers to what was recorded when it was enqueued, so the event can be used again at once.
            self.spare.push(event);
            ordered?;
        }
        self.spare.append(&mut self.uses);
        self.last = Some(Last { id: stream.id(), stream: stream.clone() });
        Ok(())
    }

    /// Declares that work on `stream`, as enqueued so far, uses memory of the nodes.
    pub(crate) fn used_on(&mut self, device: &D, stream: &D::Stream) -> Result<(), DeviceError> {
        if self.last.as_ref().is_some_and(|last| last.id == stream.id()) {
            return Ok(());
        }
        let event = self.spare.pop().map_or_else(|| device.create_event(), Ok)?;
        match device.record_event(&event, stream) {
            Ok(()) => self.uses.push(event),
            Err(error) => {
                self.spare.push(event);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The stream of the last launch.
    pub(crate) fn last(&self) -> Option<&D::Stream> {
        self.last.as_ref().map(|last| &last.stream)
    }
}
