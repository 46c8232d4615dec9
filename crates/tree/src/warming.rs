//! Warming up: a plain run inside the pool, current until its path ends.

use crate::decision::WarmUpPlan;
use crate::error::Error;
use crate::held::Turn;
use crate::node::Node;
use crate::notice::Notice;
use crate::output::Output;
use crate::path::PathState;
use crate::reasons::WarmUpReason;
use crate::recording::check_aliases;
use crate::ticket::WarmUp;
use crate::transition::Ran;
use crate::tree::Tree;
use crate::{FunctionId, NodeId};
use std::sync::Arc;

impl Tree {
    /// Begins a planned warm-up.
    ///
    /// Precondition and effect: as [`begin_recording`](Self::begin_recording).
    ///
    /// # Errors
    ///
    /// [`Error::StaleDecision`], [`Error::Busy`]; the tree is as it was.
    pub fn begin_warm_up(&mut self, plan: WarmUpPlan) -> Result<WarmUp, Error> {
        self.check_current(plan.ground.moment)?;
        let pass = self.gate.enter().ok_or(Error::Busy)?;
        Ok(WarmUp { plan, pass })
    }

    /// Reports that a warm-up has run.
    ///
    /// Precondition: the path has not moved since the plan was decided. Effect: the run is current until its
    /// path ends, and the call's token is made or consumed. The function is warm for the call's signatures,
    /// unless it is not `ready`: then the next call with them warms up again. Neither this nor
    /// [`begin_warm_up`](Self::begin_warm_up) asks which outputs are live: a warm-up demands nothing of later
    /// calls and evicts nothing. What the call gave up is dead before the next decision, and that is all.
    ///
    /// # Errors
    ///
    /// As [`finish_recording`](Self::finish_recording): the warm-up is abandoned and the tree is as it was.
    pub fn finish_warm_up(
        &mut self,
        warm_up: WarmUp,
        outputs: Vec<Output>,
        ready: bool,
    ) -> Result<Ran, Error> {
        let WarmUp { plan: WarmUpPlan { ground, key, inputs, reason, .. }, pass: _pass } = warm_up;
        self.check_current(ground.moment)?;
        let old_default = self.registered(ground.function)?.spec.old_outputs();
        check_aliases(&outputs, &inputs)?;
        let node = Node { inputs, ..self.new_node(&ground, outputs, old_default) };
        let id = self.nodes.insert(node);
        self.learn_returned(id);
        if let WarmUpReason::BelowWarmUp { node } = reason {
            let turn = (ground.function, ground.kind.phase(), ground.param_set);
            self.note_held_back(turn, &key, node);
        }
        if ready {
            self.learn_signatures(ground.function, key);
        }
        let ran = self.advance(id, ground.kind, ground.moment, PathState::WarmUp);
        self.note_staged(id, &ground.staged);
        Ok(ran)
    }

    /// Counts a call that would have been recorded or replayed had it not been below a warm-up. When there have been
    /// many the path ends; says so where that has to wait for a pending backward.
    fn note_held_back(&mut self, turn: Turn, key: &[u64], holder: NodeId) {
        let id = turn.0;
        let is_warm = self.registered(id).is_ok_and(|function| function.warm.contains(key));
        let Some(holder) = self.nodes.get(holder).map(|node| node.function).filter(|_| is_warm) else {
            return;
        };
        if self.held_back.add(turn) > self.options.limits.loop_length {
            self.notices.add(Notice::HeldByWarmUp { function: id, holder });
        }
    }

    fn learn_signatures(&mut self, id: FunctionId, key: Arc<[u64]>) {
        let limits = self.options.limits;
        let Some(function) = self.function_mut(id) else { return };
        function.warm.insert(key, limits.warm_signatures);
        let count = function.warm.len();
        if count > limits.noted_signatures as usize {
            self.notices.add(Notice::ManySignatures { function: id, count });
        }
    }
}
