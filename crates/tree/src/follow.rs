//! Whether the path may go on with a node, for whoever has compiled the node's own expectations.

use crate::NodeId;
use crate::liveness::Liveness;
use crate::tree::Tree;

impl Tree {
    /// Whether the path may go on with this recording as far as steps and the path itself are concerned: what
    /// [`follow`](Self::follow) takes the caller's word for, apart from the node's own expectations.
    ///
    /// It is so for a child whose parent is on the path with nothing needed behind it, if no step is asked for, and for a root
    /// if nothing on the path is needed. Nothing is so while a recording or warm-up is in progress.
    #[inline]
    pub fn may_follow<L: Liveness + ?Sized>(&self, node: NodeId, live: &L) -> bool {
        let Some(known) = self.nodes.get(node) else { return false };
        if known.is_warm_up() || self.gate.is_taken() {
            return false;
        }
        match known.parent {
            None => self.path.is_unneeded_from(0, &self.nodes, live),
            Some(parent) => {
                !self.is_step_requested()
                    && self.path.entry_of(parent, known.depth - 1).is_some()
                    && (known.depth as usize == self.path.len()
                        || self.path.is_unneeded_from(known.depth as usize, &self.nodes, live))
            }
        }
    }
}
