//! The simulated device itself: how it is made, and how every call enters it.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use graphgrove_device::{Call, Deferred, DeviceError, DeviceId, Problem, Result};
use parking_lot::{Condvar, Mutex};

use crate::access::Log;
use crate::clock::{Clock, Lanes};
use crate::counters::{CallCounts, Counters};
use crate::fault::{Failure, Fault, FaultPlan};
use crate::finding::{Finding, Findings};
use crate::host_call;
use crate::kernel::SimKernel;
use crate::random::Random;
use crate::run::Locked;
use crate::scope::{KernelFault, KernelScope};
use crate::space::{Kind, Space};
use crate::state::State;
use crate::stream;

/// How a simulated device is made.
///
/// ```
/// use graphgrove_sim::SimDevice;
///
/// let device = SimDevice::builder().seed(7).memory_bytes(64 << 20).checker(false).build();
/// assert!(device.findings().is_empty());
/// ```
#[derive(Debug, Clone)]
pub struct SimBuilder {
    pub(crate) seed: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) granularity: u64,
    pub(crate) exec_bytes: u64,
    pub(crate) node_bytes: u64,
    pub(crate) checker: bool,
    pub(crate) null_launch: bool,
}

impl Default for SimBuilder {
    fn default() -> Self {
        Self {
            seed: 0,
            memory_bytes: 8 << 30,
            granularity: 2 << 20,
            exec_bytes: 64 << 10,
            node_bytes: 1 << 10,
            checker: true,
            null_launch: false,
        }
    }
}

impl SimBuilder {
    /// The seed of every choice: which of the works that may run next does. The default is 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How much memory the device has, in bytes. The default is 8 GiB; the host only holds what is touched.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// What the device maps at once, in bytes: a multiple of 512, up to which the number is rounded, and 1 TiB at most. The
    /// default is 2 MiB, as on CUDA; tests of a pool may want less.
    #[must_use]
    pub fn granularity(mut self, bytes: u64) -> Self {
        self.granularity = bytes.clamp(Space::ALIGNMENT, 1 << 40).next_multiple_of(Space::ALIGNMENT);
        self
    }

    /// What an exec costs of the device's memory: so many bytes, and so many more for each node. The defaults are 64 KiB and 1 KiB.
    #[must_use]
    pub fn exec_cost(mut self, bytes: u64, bytes_per_node: u64) -> Self {
        self.exec_bytes = bytes;
        self.node_bytes = bytes_per_node;
        self
    }

    /// Whether memory accesses are checked. They are by default; without, only ranges outside of all allocations are found.
    #[must_use]
    pub fn checker(mut self, on: bool) -> Self {
        self.checker = on;
        self
    }

    /// Whether work that reaches a stream is dropped instead of run, so that what is left is the host's cost. Captures,
    /// blocking reads and writes, and stream-ordered allocation work as ever. Kernels, copies, host functions and annotations
    /// are dropped, so nothing that they would have computed is there.
    #[must_use]
    pub fn null_launch(mut self, on: bool) -> Self {
        self.null_launch = on;
        self
    }

    /// Makes the device.
    #[must_use]
    pub fn build(self) -> SimDevice {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut lanes = Lanes::new();
        let null = stream::null_state(lanes.take(&Clock::default()));
        let pasts = Arc::<AtomicU64>::default();
        let state = State {
            space: Space::new(self.memory_bytes, self.checker),
            log: Log::default(),
            lanes,
            pasts: Arc::clone(&pasts),
            host_clock: Clock::default(),
            streams: [(stream::NULL, null)].into(),
            active: Vec::new(),
            favourite: None,
            queued: 0,
            next_ticket: 0,
            calling: 0,
            null_launch: self.null_launch,
            events: Default::default(),
            captures: Default::default(),
            ordered: Default::default(),
            fault: None,
            faults: FaultPlan::default(),
            random: Random::new(self.seed),
            next_id: 0,
            digest: 0,
            garbage: Vec::new(),
        };
        SimDevice {
            shared: Arc::new(Shared {
                id: DeviceId::new(NEXT.fetch_add(1, Ordering::Relaxed)),
                config: self,
                state: Mutex::new(state),
                called: Condvar::new(),
                pasts,
                counters: Counters::new(),
                special: AtomicBool::new(false),
                deferred: Deferred::new(),
                late: Mutex::new(Vec::new()),
            }),
        }
    }
}

/// A simulated CUDA device. Clones are the same device; it lives as long as any clone or handle of it.
#[derive(Clone)]
pub struct SimDevice {
    pub(crate) shared: Arc<Shared>,
}

/// What all handles of a device share.
pub(crate) struct Shared {
    pub(crate) id: DeviceId,
    pub(crate) config: SimBuilder,
    pub(crate) state: Mutex<State>,
    /// Told when a host function that work called has returned.
    pub(crate) called: Condvar,
    counters: Counters,
    /// How often the past was forgotten. Host memory, which the state does not have, is told by it.
    pub(crate) pasts: Arc<AtomicU64>,
    /// Whether a call has to look further before it goes on: a fault is planned, or the device is poisoned.
    pub(crate) special: AtomicBool,
    pub(crate) deferred: Deferred,
    /// Destructions that came from inside of running work, under the lock; whoever holds it runs them when it lets go.
    pub(crate) late: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("id", &self.id).finish_non_exhaustive()
    }
}

thread_local! {
    static IN_KERNEL: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside of a kernel, and so holds the device's lock.
pub(crate) fn is_in_kernel() -> bool {
    IN_KERNEL.get()
}

/// Runs a kernel. Calls that it makes to the device are refused.
pub(crate) fn in_kernel<R>(body: impl FnOnce() -> R) -> R {
    let before = IN_KERNEL.replace(true);
    let result = body();
    IN_KERNEL.set(before);
    result
}

impl Shared {
    pub(crate) fn count(&self, call: Call) {
        self.counters.add(call);
    }

    /// Locks the state, for what is not a call.
    ///
    /// A kernel runs under the lock, and asking for it again would never return: that is a panic, which makes the kernel a
    /// fault. Calls are refused before they get here.
    pub(crate) fn lock(&self) -> Locked<'_> {
        assert!(!is_in_kernel(), "the device was asked from inside of a kernel");
        Locked::new(self)
    }

    /// Counts a call that needs no lock, and says whether it has to go the long way through [`enter`](Shared::enter).
    pub(crate) fn is_special(&self) -> bool {
        self.special.load(Ordering::Relaxed)
    }

    /// The begin of every call: counts it, meets planned faults, refuses it on a poisoned device, and locks the state.
    pub(crate) fn enter(&self, call: Call) -> Result<Locked<'_>> {
        self.count(call);
        if is_in_kernel() || host_call::is_running() {
            return Err(DeviceError::invalid(call, Problem::FromDeviceCode));
        }
        let mut state = self.lock();
        if self.is_special() {
            self.meet_faults(&mut state, call)?;
        }
        Ok(state)
    }

    /// As [`enter`](Shared::enter) for a call that a poisoned device answers as ever: a guard has to be able to put the thread's mode
    /// back.
    pub(crate) fn enter_anyway(&self, call: Call) -> Result<()> {
        match self.enter(call) {
            Err(DeviceError::Fault { .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn meet_faults(&self, state: &mut State, call: Call) -> Result<()> {
        if let Some(failure) = state.faults.meet(call) {
            match failure {
                Failure::InvalidateCaptures => state.invalidate_all(),
                Failure::Poison => state.poison("injected".to_owned()),
                Failure::OutOfMemory | Failure::Driver(_) => {}
            }
            let (free, total) = (state.space.free(), state.space.total());
            if let Some(error) = failure.error(call, free, total) {
                return Err(error);
            }
        }
        match &state.fault {
            Some(cause) => Err(DeviceError::Fault { cause: cause.clone() }),
            None => {
                self.special.store(!state.faults.is_empty(), Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Runs a destruction when no capture is open, counted as a call.
    pub(crate) fn destroy(self: &Arc<Self>, call: Call, body: impl FnOnce(&mut State) + Send + 'static) {
        let shared = Arc::clone(self);
        let destruction = move || {
            shared.count(call);
            body(&mut shared.lock());
        };
        if is_in_kernel() {
            // Whoever holds the lock runs it when it lets go.
            self.late.lock().push(Box::new(destruction));
        } else {
            self.deferred.run(destruction);
        }
    }

    pub(crate) fn check_owner(&self, call: Call, owner: DeviceId) -> Result<()> {
        if owner == self.id {
            return Ok(());
        }
        Err(DeviceError::ForeignHandle { call, owner, device: self.id })
    }
}

impl Default for SimDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDevice {
    /// A device with everything at its default: 8 GiB of memory, checked, seed 0.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A device to be set up.
    #[must_use]
    pub fn builder() -> SimBuilder {
        SimBuilder::default()
    }

    /// Makes a kernel from a closure, which runs once a launch. See [`KernelScope`] for what it sees.
    pub fn kernel(
        &self,
        name: impl Into<Arc<str>>,
        body: impl Fn(&KernelScope<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
    ) -> SimKernel {
        SimKernel { device: self.shared.id, name: name.into(), arguments: None, body: Arc::new(body) }
    }

    /// Plans a failure.
    pub fn inject(&self, fault: Fault) {
        self.shared.lock().faults.add(fault);
    }

    /// Forgets the failures that are still to come.
    pub fn clear_faults(&self) {
        self.shared.lock().faults.clear();
    }

    /// How often each operation was called so far.
    #[must_use]
    pub fn counts(&self) -> CallCounts {
        self.shared.counters.snapshot()
    }

    /// What the checker has found so far, oldest first. Work that has not run yet has not been checked.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.shared.lock().log.findings.clone()
    }

    /// Runs everything that is enqueued, and takes what the checker has found out of the device.
    ///
    /// Tests end with it: `device.verdict().unwrap()` fails with every finding in words, and if the device is poisoned.
    ///
    /// # Errors
    /// [`Findings`], if there are any or the device is poisoned. The poison stays.
    pub fn verdict(&self) -> Result<(), Findings> {
        let mut state = self.shared.lock();
        state.finish_all();
        let log = std::mem::take(&mut state.log);
        let fault = state.fault.clone();
        if log.findings.is_empty() && fault.is_none() {
            return Ok(());
        }
        Err(Findings { findings: log.findings, more: log.more, fault })
    }

    /// A number that depends on everything that has run so far and on the order in which it ran. Two devices with the
    /// same seed that are given the same calls have the same.
    #[must_use]
    pub fn execution_digest(&self) -> u64 {
        self.shared.lock().digest
    }

    /// How many segments are allocated.
    #[must_use]
    pub fn live_segments(&self) -> usize {
        self.shared.lock().space.count(Kind::Segment)
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDevice").field("id", &self.shared.id).finish_non_exhaustive()
    }
}
