//! What becomes an event, and when it is told.

use std::sync::Arc;

use graphgrove_device::Device;
use graphgrove_replay::ParamSet;
use graphgrove_tree::{CallKind, EagerReason, FunctionId, NodeId, Notice};

use crate::engine::{Kind, Shared};
use crate::grove::{Done, Grove, Request};
use crate::observer::Watch;
use crate::{Arg, Error, Event, FunctionName, How, Phase, Result};

impl<D: Device> Shared<D> {
    /// Makes a call of an engine that is observed.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_watched(
        &self,
        watch: &Watch,
        what: (usize, Option<&ParamSet>, Option<&D::Stream>),
        kind: Kind,
        args: &mut [Arg<'_, D>],
    ) -> Result<Done> {
        // Whoever calls next has to wait until it is noted what this call was; the lock is reentrant.
        let guard = self.state.lock();
        let is_nested = guard.try_borrow_mut().is_err();
        if !is_nested {
            let mut seen = watch.seen.lock();
            (seen.is_called, seen.why) = (false, None);
        }
        let phase = kind.0;
        let result = self.run_locked(what, kind, args);
        if let Ok(mut state) = guard.try_borrow_mut() {
            let name = self.name_of(&mut state, what.0);
            let grove = state.groves.iter_mut();
            let grove =
                result.as_ref().ok().and_then(|done| grove.into_iter().find(|of| of.serial() == done.grove));
            let is_called = watch.seen.lock().is_called;
            if let Some(grove) = grove.filter(|_| !is_called) {
                // What followed the last time has followed again, and nobody was asked.
                let node = grove.tree.current();
                grove.note_call(name.clone(), phase, How::Replay, node);
            }
            let judged = watch.seen.lock().judged.take();
            if let Some(event) = judged {
                watch.add(event);
            }
            if let Err(error) = &result {
                watch.add(Event::Failed { function: name, error: error.to_string() });
            }
            let pools = state.groves.iter().map(|grove| (grove.serial(), grove.pool_stats().ranges.reserved));
            let plain = (0, self.plain.stats().ranges.reserved);
            watch.note_pools(pools.chain([plain]));
        }
        drop(guard);
        if !is_nested {
            watch.tell();
        }
        result
    }

    /// Adds an event that belongs to no call, and tells it, unless a call is under way, which will.
    pub(crate) fn note(&self, event: impl FnOnce() -> Event) {
        let Some(watch) = &self.watch else { return };
        watch.add(event());
        let is_free = self.state.try_lock().is_some_and(|state| state.try_borrow_mut().is_ok());
        if is_free {
            watch.tell();
        }
    }
}

impl Watch {
    fn note_pools(&self, pools: impl Iterator<Item = (u64, u64)>) {
        let mut seen = self.seen.lock();
        for (pool, reserved) in pools {
            let before = seen.reserved.insert(pool, reserved).unwrap_or(0);
            if reserved > before {
                self.add(Event::PoolGrew { pool, bytes: reserved - before, reserved });
            } else if reserved < before {
                self.add(Event::PoolShrank { pool, bytes: before - reserved, reserved });
            }
        }
    }
}

impl<D: Device> Grove<D> {
    /// Takes note of why the call that is under way does not replay.
    pub(crate) fn because(&self, why: impl FnOnce() -> String) {
        if let Some(watch) = &self.watch {
            watch.seen.lock().why = Some(why());
        }
    }

    /// Takes note of how a call has run.
    pub(crate) fn note_ran(&mut self, request: &Request<'_, D>, how: How, node: Option<NodeId>) {
        if self.watch.is_some() {
            self.note_call(request.data.event_name(), request.kind, how, node);
        }
    }

    fn note_call(&mut self, function: FunctionName, kind: CallKind, how: How, node: Option<NodeId>) {
        let Some(watch) = self.watch.clone() else { return };
        let (pool, step) = (self.serial(), self.tree.step().get());
        let node = node.and_then(|node| self.number(&watch, node));
        let phase = match kind {
            CallKind::Inference => Phase::Inference,
            CallKind::Forward => Phase::Forward,
            CallKind::Backward(_) => Phase::Backward,
        };
        let mut seen = watch.seen.lock();
        seen.is_called = true;
        let why = seen.why.take();
        // A plain run is part of no step.
        if how != How::Eager && seen.steps.insert(pool, step) != Some(step) {
            watch.add(Event::StepBegan { pool, step });
        }
        drop(seen);
        watch.add(Event::Called { pool, function, phase, how, why, node, step });
        for notice in self.tree.take_notices() {
            // The tree does not know why, and the call itself says so.
            if matches!(notice, Notice::RanEagerly { reason: EagerReason::Unpoolable, .. }) {
                continue;
            }
            let function = self.function_name(notice.function());
            let what = self.tree.explain(&notice, kind.phase());
            watch.add(Event::Noticed { pool, function, what });
        }
    }

    /// Takes note of a recording.
    pub(crate) fn note_recorded(&self, request: &Request<'_, D>, node: NodeId, start: u64) {
        let Some(watch) = &self.watch else { return };
        let key = self.nodes.get(node).and_then(|held| held.key);
        let parent = self.tree.node(node).and_then(graphgrove_tree::Node::parent);
        watch.add(Event::Recorded {
            pool: self.serial(),
            function: request.data.event_name(),
            node: self.number(watch, node).unwrap_or(0),
            parent: parent.and_then(|parent| self.number(watch, parent)),
            graph_nodes: key.and_then(|key| self.replayer.graph_nodes(key)),
            exec_bytes: key.and_then(|key| self.replayer.exec_bytes(key)),
            live_bytes: self.pool.stats().ranges.live,
            ns: self.clock.since(start),
        });
    }

    /// Takes note of a recording that failed.
    pub(crate) fn note_failure(&self, request: &Request<'_, D>, error: &Error) {
        if let Some(watch) = &self.watch {
            let (pool, function) = (self.serial(), request.data.event_name());
            watch.add(Event::RecordingFailed { pool, function, error: error.to_string() });
        }
    }

    /// Takes note of a node that is gone, if it was a recording.
    pub(crate) fn note_gone(&self, node: NodeId, was_recording: bool) {
        let Some(watch) = &self.watch else { return };
        let number = watch.seen.lock().numbers.remove(&(self.serial(), node));
        if let (Some(node), true) = (number, was_recording) {
            watch.add(Event::Evicted { pool: self.serial(), node });
        }
    }

    /// Takes note of a path that ended with live outputs.
    pub(crate) fn note_path_end(&self, request: &Request<'_, D>, stale: usize, copied: usize, bytes: u64) {
        if let Some(watch) = &self.watch {
            let (pool, by) = (self.serial(), request.data.event_name());
            watch.add(Event::PathEnded { pool, by, stale, copied, bytes });
        }
    }

    /// The number of a node, which is remembered for when it is gone.
    fn number(&self, watch: &Arc<Watch>, node: NodeId) -> Option<u64> {
        let number = self.tree.node(node)?.serial();
        watch.seen.lock().numbers.insert((self.serial(), node), number);
        Some(number)
    }

    fn function_name(&self, function: FunctionId) -> FunctionName {
        self.names
            .get(function.get() as usize)
            .cloned()
            .unwrap_or_else(|| FunctionName { id: 0, name: "".into() })
    }
}
