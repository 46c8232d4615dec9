//! The device's lock, and running work until something is reached.
//!
//! Work runs on the thread that waits for it, under the lock, save for host functions: those may take locks of their own or
//! talk to other threads that use the device, so they run while the lock is released.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use graphgrove_device::StreamId;
use parking_lot::MutexGuard;

use crate::clock::Clock;
use crate::device::Shared;
use crate::host_call;
use crate::scheduler::Step;
use crate::state::{Recording, State};

/// Work that is waiting past this many pieces is run down when more is enqueued, so that a program which never waits
/// does not fill the host's memory.
const BACKLOG: usize = 4096;

/// The state, locked. What has finished meanwhile is dropped after the lock is.
pub(crate) struct Locked<'a> {
    shared: &'a Shared,
    state: Option<MutexGuard<'a, State>>,
}

impl<'a> Locked<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self { shared, state: Some(shared.state.lock()) }
    }

    /// Runs work until the stream has nothing left to do.
    pub(crate) fn finish_stream(&mut self, stream: StreamId) {
        while self.streams.get(&stream).is_some_and(|state| !state.is_idle()) && self.advance() {}
        let state = &mut **self;
        if let Some(stream) = state.streams.get(&stream) {
            state.host_clock.join(&stream.clock);
        }
    }

    /// Runs work until the recording is reached.
    pub(crate) fn finish_recording(&mut self, recording: &Recording) {
        while recording.reached().is_none() && self.advance() {}
        if let Some(clock) = recording.reached() {
            self.host_clock.join(clock);
        }
    }

    /// Runs all work.
    pub(crate) fn finish_all(&mut self) {
        while self.advance() {}
        let clock = self.streams.values().fold(Clock::default(), |mut all, state| {
            all.join(&state.clock);
            all
        });
        self.host_clock.join(&clock);
    }

    /// Lets time pass: runs a few pieces of work, at least one if there is any.
    pub(crate) fn pass_time(&mut self) {
        for _ in 0..=self.random.below(4) {
            self.advance();
        }
    }

    /// Keeps the backlog within its bound.
    pub(crate) fn trim_backlog(&mut self) {
        while self.queued > BACKLOG && self.advance() {}
    }

    /// Runs one piece of work, or waits for one that another thread runs. Returns whether there was any.
    fn advance(&mut self) -> bool {
        match self.step() {
            Step::Ran => true,
            Step::Nothing => {
                let waits = self.calling > 0 && !host_call::is_running();
                if waits && let Some(state) = &mut self.state {
                    self.shared.called.wait(state);
                }
                waits
            }
            Step::Call(running) => {
                let outcome = match &mut self.state {
                    Some(state) => MutexGuard::unlocked(state, || running.run(self.shared.id)),
                    None => Ok(()),
                };
                self.end_call(running, outcome);
                self.shared.called.notify_all();
                true
            }
        }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        // The guard is only taken out by the drop.
        self.state
            .as_deref()
            .unwrap_or_else(|| unreachable!("the state is locked until the guard is dropped"))
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state
            .as_deref_mut()
            .unwrap_or_else(|| unreachable!("the state is locked until the guard is dropped"))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        if state.fault.is_some() || !state.faults.is_empty() {
            self.shared.special.store(true, Ordering::Relaxed);
        }
        let garbage = std::mem::take(&mut state.garbage);
        drop(state);
        drop(garbage);
        let late = std::mem::take(&mut *self.shared.late.lock());
        for destruction in late {
            self.shared.deferred.run(destruction);
        }
    }
}
