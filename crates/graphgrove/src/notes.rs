//! Notes: two numbers of host memory for each call that draws, which the call's own work copies to the device.
//!
//! A launch returns before it has run, and the next call brings other numbers. So each call has a note of its own, in a page that is written
//! again only once the device has passed the last call that had a note in it: one event a page, asked for when the next
//! page is needed. No driver call is made but for that.

use std::collections::VecDeque;

use graphgrove_device::{CaptureMode, Device, ModeGuard, Progress, Streams};

use crate::Result;
use crate::generator::GeneratorState;

/// The bytes of a note: seed and offset, as a little-endian device reads them.
pub(crate) const NOTE_BYTES: usize = 16;

/// How many notes a page has, and how many pages there are before the host waits for the device.
const SIZE: Size = Size { notes: 1024, pages: 8 };

#[derive(Clone, Copy, Debug)]
struct Size {
    notes: usize,
    pages: usize,
}

/// A note: where it is in host memory.
pub(crate) struct Note<D: Device> {
    pub(crate) page: D::HostBuffer,
    /// Bytes from the start of the page.
    pub(crate) offset: usize,
}

/// The notes of an engine. Its calls run one after the other, on whatever streams.
pub(crate) struct Notes<D: Device> {
    size: Size,
    /// The page that notes are taken from, and how many were.
    open: Option<(D::HostBuffer, usize)>,
    /// Pages without room, behind whose last use no event was recorded yet.
    full: Vec<D::HostBuffer>,
    /// Pages without room and the events behind their last uses, oldest first.
    awaited: VecDeque<(D::HostBuffer, <D as Streams>::Event)>,
}

impl<D: Device> Notes<D> {
    pub(crate) const fn new() -> Self {
        Self { size: SIZE, open: None, full: Vec::new(), awaited: VecDeque::new() }
    }

    /// Writes a note. It may be done while a capture is open.
    pub(crate) fn write(&mut self, device: &D, state: GeneratorState) -> Result<Note<D>> {
        use graphgrove_device::HostMemory;
        let is_open = self.open.as_ref().is_some_and(|(_, taken)| *taken < self.size.notes);
        if !is_open {
            self.turn_page(device)?;
        }
        let Some((page, taken)) = &mut self.open else { return Err(crate::Error::ShutDown) };
        let note = Note { page: page.clone(), offset: *taken * NOTE_BYTES };
        let mut bytes = [0; NOTE_BYTES];
        let (seed, offset) = bytes.split_at_mut(NOTE_BYTES / 2);
        seed.copy_from_slice(&state.seed.to_le_bytes());
        offset.copy_from_slice(&state.offset.to_le_bytes());
        page.write(note.offset, &bytes)?;
        *taken += 1;
        Ok(note)
    }

    /// Says that all notes so far are used by work that was enqueued on the stream, or on others before it. A page that no event can be
    /// recorded for is not used again.
    #[inline]
    pub(crate) fn passed(&mut self, device: &D, stream: &D::Stream) {
        if !self.full.is_empty() {
            self.await_pages(device, stream);
        }
    }

    #[cold]
    fn await_pages(&mut self, device: &D, stream: &D::Stream) {
        for page in self.full.drain(..) {
            let recorded = device.create_event().and_then(|event| {
                device.record_event(&event, stream)?;
                Ok(event)
            });
            if let Ok(event) = recorded {
                self.awaited.push_back((page, event));
            }
        }
    }

    /// Opens a page with room. What there is stays if none can be had.
    #[cold]
    fn turn_page(&mut self, device: &D) -> Result<()> {
        // What comes may be refused while this thread captures, and harms no capture.
        let _relaxed = ModeGuard::swap(device, CaptureMode::Relaxed)?;
        let is_passed = match self.awaited.front() {
            Some((_, event)) if self.awaited.len() + 1 >= self.size.pages => {
                device.synchronize_event(event)?;
                true
            }
            Some((_, event)) => device.query_event(event)? == Progress::Done,
            None => false,
        };
        let passed = if is_passed { self.awaited.pop_front() } else { None };
        let page = match passed {
            Some((page, _)) => page,
            None => device.host_buffer(self.size.notes * NOTE_BYTES)?,
        };
        self.full.extend(self.open.replace((page, 0)).map(|(page, _)| page));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use graphgrove_device::{HostMemory, Memory, SegmentMemory, Work};
    use graphgrove_sim::{SimDevice, SimStream};

    use super::*;

    /// Writes a note and enqueues its copy, as a call does.
    fn turn(notes: &mut Notes<SimDevice>, device: &SimDevice, stream: &SimStream, to: u64, seed: u64) {
        let note = notes.write(device, GeneratorState { seed, offset: seed + 1 }).unwrap();
        let to = graphgrove_device::DevicePtr::new(to);
        device.upload(stream, to, &note.page, note.offset, NOTE_BYTES).unwrap();
        notes.passed(device, stream);
    }

    fn small() -> Notes<SimDevice> {
        Notes { size: Size { notes: 2, pages: 3 }, ..Notes::new() }
    }

    #[test]
    fn a_page_is_written_again_only_behind_its_last_use_and_there_are_no_more_than_that() {
        let device = SimDevice::builder().seed(2).build();
        let stream = device.create_stream().unwrap();
        let segment = device.allocate(100 * NOTE_BYTES as u64).unwrap();
        let mut notes = small();
        for at in 0..100 {
            let to = segment.base().get() + at * NOTE_BYTES as u64;
            turn(&mut notes, &device, &stream, to, at);
            assert!(notes.awaited.len() + notes.full.len() < notes.size.pages, "{at}");
        }
        device.synchronize().unwrap();
        for at in 0..100_u64 {
            let mut bytes = [0; NOTE_BYTES];
            device.read(segment.base().checked_add(at * NOTE_BYTES as u64).unwrap(), &mut bytes).unwrap();
            assert_eq!(bytes, *[at.to_le_bytes(), (at + 1).to_le_bytes()].as_flattened());
        }
        device.verdict().unwrap();
    }

    #[test]
    fn a_page_is_turned_inside_of_a_capture_without_harm_to_it() {
        use graphgrove_device::CaptureGuard;
        let device = SimDevice::new();
        let stream = device.create_stream().unwrap();
        let segment = device.allocate(NOTE_BYTES as u64).unwrap();
        let mut notes = small();
        for at in 0..3 {
            turn(&mut notes, &device, &stream, segment.base().get(), at);
        }
        let capture = CaptureGuard::begin(&device, &stream, CaptureMode::ThreadLocal).unwrap();
        for at in 0..4 {
            let note = notes.write(&device, GeneratorState { seed: at, offset: 0 }).unwrap();
            let mut bytes = [0; 8];
            note.page.read(note.offset, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), at);
        }
        capture.end().unwrap();
        device.verdict().unwrap();
    }

    #[test]
    fn a_page_that_cannot_be_had_leaves_everything_as_it_was() {
        use graphgrove_device::Call;
        use graphgrove_sim::{Failure, Fault};
        let device = SimDevice::new();
        let mut notes = small();
        let state = GeneratorState { seed: 3, offset: 4 };
        device.inject(Fault::at(Call::AllocateHost, 1, Failure::OutOfMemory));
        assert!(notes.write(&device, state).is_err());
        let note = notes.write(&device, state).unwrap();
        assert_eq!(note.offset, 0);
    }
}
