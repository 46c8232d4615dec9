//! Pinned host memory of the simulated device.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use graphgrove_device::{Call, DeviceError, DeviceId, HostMemory, Problem, Result};
use parking_lot::Mutex;

use crate::backing::Backing;
use crate::clock::Clock;
use crate::device::{Shared, is_in_kernel};
use crate::finding::Finding;
use crate::host_call;
use crate::shadow::{Clash, Content, Mark, Shadow};

/// The memory and what the checker knows about it.
#[derive(Debug)]
struct Memory {
    backing: Backing,
    shadow: Option<Shadow>,
    /// How often the device has forgotten the past, and how often it had when the shadow was last looked at.
    pasts: Arc<AtomicU64>,
    seen: u64,
}

impl Memory {
    /// What the checker knows. Of accesses before the device last forgot the past it knows nothing: no clock has reached them
    /// any more, so each would count as a race.
    fn shadow(&mut self) -> Option<&mut Shadow> {
        let pasts = self.pasts.load(Ordering::Relaxed);
        let is_old = std::mem::replace(&mut self.seen, pasts) != pasts;
        let shadow = self.shadow.as_mut()?;
        if is_old {
            shadow.forget_accesses();
        }
        Some(shadow)
    }
}

/// Whoever holds one keeps the memory alive. The bytes themselves outlive it, so that work which comes too late can be
/// told from work that is in time.
#[derive(Debug)]
struct Owner {
    device: Weak<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            let shared = Arc::clone(&device);
            device.deferred.run(move || shared.count(Call::FreeHost));
        }
    }
}

/// What work holds of a host buffer.
#[derive(Debug, Clone)]
pub(crate) struct HostRef {
    bytes: usize,
    memory: Arc<Mutex<Memory>>,
    alive: Weak<Owner>,
    _owner: Option<Arc<Owner>>,
}

impl HostRef {
    /// Whether the buffer still has an owner.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.strong_count() > 0
    }

    /// Copies out of the buffer on behalf of running work, and says what that ran into.
    pub(crate) fn load(&self, offset: usize, data: &mut [u8], clock: &Clock, mark: &Mark) -> Vec<Clash> {
        let mut memory = self.memory.lock();
        let end = offset + data.len();
        let clashes = match memory.shadow() {
            Some(shadow) => shadow.read(offset as u64, end as u64, clock, mark).0,
            None => Vec::new(),
        };
        if let Some(bytes) = memory.backing.slice_mut(offset, end) {
            data.copy_from_slice(bytes);
        }
        clashes
    }

    /// Copies into the buffer on behalf of running work, and says what that ran into.
    pub(crate) fn store(&self, offset: usize, data: &[u8], clock: &Clock, mark: &Mark) -> Vec<Clash> {
        let mut memory = self.memory.lock();
        let end = offset + data.len();
        let clashes = match memory.shadow() {
            Some(shadow) => shadow.write(offset as u64, end as u64, clock, mark),
            None => Vec::new(),
        };
        if let Some(bytes) = memory.backing.slice_mut(offset, end) {
            bytes.copy_from_slice(data);
        }
        clashes
    }

    pub(crate) fn check_range(&self, call: Call, offset: usize, bytes: usize) -> Result<()> {
        let length = self.bytes as u64;
        if bytes == 0 {
            return Err(DeviceError::invalid(call, Problem::ZeroBytes));
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(DeviceError::invalid(
                call,
                Problem::OutOfRange { offset: offset as u64, bytes: bytes as u64, length },
            )),
        }
    }
}

/// Pinned host memory of the simulated device. Made by [`Memory::host_buffer`](graphgrove_device::Memory::host_buffer).
#[derive(Clone)]
pub struct SimHostBuffer {
    device: Arc<Shared>,
    inner: HostRef,
}

impl SimHostBuffer {
    /// `None` if the host has not that much memory.
    pub(crate) fn new(device: &Arc<Shared>, bytes: usize) -> Option<Self> {
        let owner = Arc::new(Owner { device: Arc::downgrade(device) });
        let mut backing = Backing::new(bytes);
        backing.start()?;
        let memory = Memory {
            backing,
            shadow: device.config.checker.then(|| Shadow::new(bytes as u64, Content::Defined)),
            pasts: Arc::clone(&device.pasts),
            seen: device.pasts.load(Ordering::Relaxed),
        };
        let inner = HostRef {
            bytes,
            memory: Arc::new(Mutex::new(memory)),
            alive: Arc::downgrade(&owner),
            _owner: Some(owner),
        };
        Some(Self { device: Arc::clone(device), inner })
    }

    /// A handle to the same memory that does not keep it alive.
    ///
    /// Work that is enqueued with it behaves as a C program that passes a raw pointer: if every other handle is gone when the
    /// work runs, the checker reports [`Finding::HostMemoryGone`](crate::Finding::HostMemoryGone).
    #[must_use]
    pub fn unowned(&self) -> Self {
        Self { device: Arc::clone(&self.device), inner: HostRef { _owner: None, ..self.inner.clone() } }
    }

    pub(crate) fn reference(&self) -> &HostRef {
        &self.inner
    }

    /// Runs one access of the host under the device's lock, so that the checker can order it.
    fn access(
        &self,
        call: Call,
        offset: usize,
        bytes: usize,
        body: impl FnOnce(&Clock, &Mark) -> Vec<Clash>,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.inner.check_range(call, offset, bytes)?;
        if is_in_kernel() {
            return Err(DeviceError::invalid(call, Problem::FromDeviceCode));
        }
        let mut state = self.device.lock();
        // A host function that a stream called acts at its own place in the stream.
        let (clock, mark) =
            host_call::place(self.device.id).unwrap_or_else(|| state.host_access(call.name()));
        for clash in body(&clock, &mark) {
            if let Clash::Race { with, .. } = clash {
                let finding = Finding::host_race(&with, &mark.site, bytes);
                state.log.add(finding);
            }
        }
        Ok(())
    }
}

impl HostMemory for SimHostBuffer {
    fn device(&self) -> DeviceId {
        self.device.id
    }

    fn bytes(&self) -> usize {
        self.inner.bytes
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner.memory, &other.inner.memory)
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        self.access(Call::Write, offset, data.len(), |clock, mark| {
            self.inner.store(offset, data, clock, mark)
        })
    }

    fn read(&self, offset: usize, data: &mut [u8]) -> Result<()> {
        self.access(Call::Read, offset, data.len(), |clock, mark| self.inner.load(offset, data, clock, mark))
    }
}

impl fmt::Debug for SimHostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHostBuffer").field("bytes", &self.inner.bytes).finish_non_exhaustive()
    }
}
