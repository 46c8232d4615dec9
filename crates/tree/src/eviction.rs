//! Keeping the number of recordings within bounds: the least recently used go, and nothing that is in use.

use crate::decision::RecordPlan;
use crate::error::Error;
use crate::function::Function;
use crate::liveness::Liveness;
use crate::path::PathEntry;
use crate::reasons::EagerReason;
use crate::tree::Tree;
use crate::{FunctionId, NodeId};

impl Tree {
    /// Removes a node and all below it, and returns them, so that the layers above can free what belongs to
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownNode`]; [`Error::InUse`] if the node is on the current path or something below it is
    /// live. Nothing is removed then.
    pub fn evict<L: Liveness + ?Sized>(&mut self, node: NodeId, live: &L) -> Result<Vec<NodeId>, Error> {
        if !self.nodes.contains_key(node) {
            return Err(Error::UnknownNode { node });
        }
        if !self.can_go(node, self.path.len(), &[], live) {
            return Err(Error::InUse { node });
        }
        Ok(self.remove_subtree(node))
    }

    /// Removes a function with all its recordings and all below them, and returns those. Its name is not used
    /// again, and nothing else of it is left: notices of it that nobody has taken are gone too. It looks at
    /// every node once.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownFunction`]; [`Error::InUse`] if one of its nodes is on the current path or something
    /// below one is live. Nothing is removed then.
    pub fn remove_function<L: Liveness + ?Sized>(
        &mut self,
        function: FunctionId,
        live: &L,
    ) -> Result<Vec<NodeId>, Error> {
        let nodes = self.registered(function)?.nodes.clone();
        let is_its_own = |id: &NodeId| self.nodes.get(*id).is_some_and(|node| node.function == function);
        let on_path = self.path().find(is_its_own);
        let in_use = nodes.iter().copied().find(|node| !self.can_go(*node, self.path.len(), &[], live));
        if let Some(node) = on_path.or(in_use) {
            return Err(Error::InUse { node });
        }
        let gone = nodes.into_iter().flat_map(|node| self.remove_subtree(node)).collect();
        self.functions.remove(function);
        self.index.remove_place(None, function);
        for (id, node) in &mut self.nodes {
            if node.child_functions.contains(&function) {
                node.child_functions.retain(|child| *child != function);
                self.index.remove_place(Some(id), function);
            }
        }
        self.notices.forget(function);
        Ok(gone)
    }

    /// Removes every node, ends the path, and forgets every token and everything learnt about the functions,
    /// which stay registered. Returns the nodes, so that the layers above can free what belongs to them;
    /// handles of their outputs are stale from now on. Work in progress can no longer be finished. The number
    /// of the step stays what it is, so that steps are never counted twice.
    pub fn reset(&mut self) -> Vec<NodeId> {
        let gone = self.nodes.drain().map(|(id, _)| id).collect();
        self.path.cut(0).for_each(drop);
        self.index = crate::index::Index::default();
        self.params.clear();
        self.tokens.clear();
        for function in self.functions.iter_mut() {
            *function = Function::new(function.spec.clone());
        }
        (self.last, self.predicted) = (None, None);
        self.steps_answered = self.steps_requested;
        self.version += 1;
        gone
    }

    /// Whether there is no room for the planned recording, and none can be made.
    pub(crate) fn lacks_room<L: Liveness + ?Sized>(
        &self,
        plan: &RecordPlan,
        function: &Function,
        needed: usize,
        live: &L,
    ) -> Option<EagerReason> {
        let limits = &self.options.limits;
        let id = plan.ground.function;
        let leaving = self.path.entries().get(needed..).unwrap_or_default();
        let is_full = |nodes: &[NodeId], limit: u32| {
            nodes.len() >= limit as usize && self.least_used(nodes, needed, leaving, live).is_none()
        };
        let siblings = self.children(plan.ground.parent, id);
        let alike = self.alike(plan.ground.parent, plan.identity);
        let of_siblings = |limit| EagerReason::Siblings { function: id, limit };
        if is_full(siblings, limits.siblings) {
            Some(of_siblings(limits.siblings))
        } else if is_full(&alike, limits.liveness_variants) {
            Some(of_siblings(limits.liveness_variants))
        } else if is_full(&function.nodes, limits.recordings_per_function) {
            let limit = limits.recordings_per_function;
            Some(EagerReason::FunctionRecordings { function: id, limit })
        } else {
            None
        }
    }

    /// Makes room for `node`, which has just been inserted and is current, and returns what had to go.
    pub(crate) fn make_room<L: Liveness + ?Sized>(
        &mut self,
        node: NodeId,
        leaving: &[PathEntry],
        live: &L,
    ) -> Vec<NodeId> {
        let Some((parent, function, identity)) =
            self.nodes.get(node).map(|node| (node.parent, node.function, node.identity))
        else {
            return Vec::new();
        };
        let limits = self.options.limits;
        let kept = self.path.len();
        let mut gone = Vec::new();
        let mut shrink = |tree: &mut Self, list: &dyn Fn(&Self) -> Vec<NodeId>, limit: u32| {
            loop {
                let nodes = list(tree);
                if nodes.len() <= limit as usize {
                    break;
                }
                let Some(oldest) = tree.least_used(&nodes, kept, leaving, live) else { break };
                gone.extend(tree.remove_subtree(oldest));
            }
        };
        shrink(self, &|tree| tree.alike(parent, identity), limits.liveness_variants);
        shrink(self, &|tree| tree.children(parent, function).to_vec(), limits.siblings);
        let of_function =
            |tree: &Self| tree.registered(function).map_or(Vec::new(), |known| known.nodes.clone());
        shrink(self, &of_function, limits.recordings_per_function);
        gone
    }

    /// The recordings in a place that differ in nothing but what has to be dead.
    fn alike(&self, parent: Option<NodeId>, identity: u64) -> Vec<NodeId> {
        let alike = self.index.with_identity(identity).iter().copied();
        alike.filter(|id| self.nodes.get(*id).is_some_and(|node| node.parent == parent)).collect()
    }

    /// The node of `nodes` that was used least recently and can go.
    fn least_used<L: Liveness + ?Sized>(
        &self,
        nodes: &[NodeId],
        kept: usize,
        leaving: &[PathEntry],
        live: &L,
    ) -> Option<NodeId> {
        let mut by_age: Vec<_> =
            nodes.iter().filter_map(|id| Some((self.nodes.get(*id)?.last_used, *id))).collect();
        by_age.sort_unstable_by_key(|(last_used, _)| *last_used);
        by_age.into_iter().map(|(_, id)| id).find(|id| self.can_go(*id, kept, leaving, live))
    }

    /// Whether a node can be removed: it is not among the first `kept` of the path, and nothing in or below
    /// it is live, the runs that are `leaving` the path apart, whose live outputs are dealt with as the path
    /// ends.
    fn can_go<L: Liveness + ?Sized>(
        &self,
        node: NodeId,
        kept: usize,
        leaving: &[PathEntry],
        live: &L,
    ) -> bool {
        let Some(data) = self.nodes.get(node) else { return false };
        let on_path = (data.depth as usize) < kept && self.path.entry_of(node, data.depth).is_some();
        !on_path
            && self.subtree(node).iter().all(|id| {
                leaving.iter().any(|entry| entry.node == *id)
                    || self.nodes.get(*id).is_none_or(|data| {
                        data.tracked.words().all(|(word, tracked)| live.live_word(*id, word) & tracked == 0)
                    })
            })
    }

    /// A node and all recordings below it, parents first.
    pub(crate) fn subtree(&self, root: NodeId) -> Vec<NodeId> {
        let mut all = vec![root];
        let mut next = 0;
        while let Some(&id) = all.get(next) {
            next += 1;
            let Some(node) = self.nodes.get(id) else { continue };
            for function in &node.child_functions {
                all.extend_from_slice(self.children(Some(id), *function));
            }
        }
        all
    }

    /// Removes a node and all below it from every table. Whatever still names them finds nothing.
    fn remove_subtree(&mut self, root: NodeId) -> Vec<NodeId> {
        let all = self.subtree(root);
        for &id in &all {
            let Some(node) = self.nodes.remove(id) else { continue };
            self.index.remove(id, node.parent, node.function, node.identity);
            if let Some(function) = self.function_mut(node.function) {
                function.nodes.retain(|other| *other != id);
            }
            for function in &node.child_functions {
                self.index.remove_place(Some(id), *function);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Call, Decision, EagerReason, FunctionId, FunctionSpec, LiveTable, Node, NodeId, TokenId, Tree,
    };

    /// Runs a forward without outputs and returns its token.
    fn run(tree: &mut Tree, function: FunctionId) -> TokenId {
        let (call, live) = (Call::forward(function, &[]), LiveTable::new());
        let ran = match tree.decide(&call, &live).unwrap() {
            Decision::WarmUp(plan) => {
                let warm_up = tree.begin_warm_up(*plan).unwrap();
                tree.finish_warm_up(warm_up, Vec::new(), true).unwrap()
            }
            Decision::Record(plan) => {
                let recording = tree.begin_recording(*plan, &live).unwrap();
                tree.finish_recording(recording, Vec::new(), &live).unwrap()
            }
            Decision::Replay(replay) => tree.replayed(replay, &call).unwrap(),
            Decision::Eager(reason) => panic!("{reason}"),
        };
        ran.token.unwrap()
    }

    /// Runs it until it is replayed, and returns the node.
    fn settle(tree: &mut Tree, function: FunctionId) -> NodeId {
        for _ in 0..3 {
            let token = run(tree, function);
            assert!(tree.discard_backward(token));
        }
        tree.current().unwrap()
    }

    #[test]
    fn functions_that_come_and_go_leave_nothing_behind() {
        let mut tree = Tree::default();
        let lasting = tree.add_function(FunctionSpec::new("lasting"));
        let root = settle(&mut tree, lasting);
        let mut sizes = Vec::new();
        for _ in 0..100 {
            let passing = tree.add_function(FunctionSpec::new("passing"));
            let _token =
                tree.ran_eagerly(&Call::inference(passing, &[]), &EagerReason::KeyNotListed).unwrap();
            let token = run(&mut tree, lasting);
            let below = settle(&mut tree, passing);
            assert_eq!(tree.node(below).and_then(Node::parent), Some(root));
            assert!(tree.discard_backward(token));
            let token = run(&mut tree, lasting);
            assert!(tree.discard_backward(token));
            assert!(!tree.remove_function(passing, &LiveTable::new()).unwrap().is_empty());
            let children = tree.nodes[root].child_functions.len();
            sizes.push((tree.index.sizes(), children, tree.functions.len(), tree.notices.len()));
        }
        assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
    }
}
