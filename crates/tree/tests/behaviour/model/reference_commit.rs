//! What the reference does when something has happened.

use super::reference::{Change, Expected, Place, RCall, RDemotion, REntry, RNode, RSlot, Reference};
use graphgrove_tree::{PathState, Phase};
use std::collections::BTreeSet;

impl Reference {
    fn dead_below(&self, place: Place) -> BTreeSet<RSlot> {
        let ancestors = self.ancestors(place);
        let slots = ancestors.into_iter().flat_map(|node| self.slots(node).collect::<Vec<_>>());
        slots.filter(|slot| !self.live.contains(slot)).collect()
    }

    /// One call of the function has gone by.
    pub(super) fn tick(&mut self, function: usize) {
        let limits = self.limits;
        for ((_, of), count) in &mut self.rerecordings {
            if *of == function {
                count.tick(limits.rerecordings_decay);
            }
        }
        let function = &mut self.functions[function];
        function.changes.values_mut().for_each(|count| count.tick(limits.changes_decay));
        function.failures.tick(limits.failures_decay);
        function.unreplayed.tick(limits.unreplayed_decay);
    }

    pub(super) fn fail(&mut self, function: usize) {
        self.functions[function].failures.add();
    }

    pub(super) fn end_token(&mut self, token: usize) {
        self.tokens[token] = false;
        self.path.iter_mut().filter(|entry| entry.token == Some(token)).for_each(|entry| entry.token = None);
    }

    /// Carries out what was decided; `dies` is a slot that dies while the call runs. Returns the number of
    /// the node.
    pub(super) fn commit(
        &mut self,
        call: &RCall,
        expected: &Expected,
        ready: bool,
        dies: Option<RSlot>,
    ) -> usize {
        let (place, change, node) = match expected {
            Expected::Replay { node, change } => (self.node(*node).parent, change, Some(*node)),
            Expected::Record { parent, change, .. } | Expected::WarmUp { parent, change, .. } => {
                (*parent, change, None)
            }
            other => panic!("{other:?} is not run in the pool"),
        };
        let dead_before = self.dead_below(place);
        let given_up: Vec<_> = self.live.iter().copied().filter(|slot| call.gives_up(*slot)).collect();
        given_up.iter().for_each(|slot| {
            self.live.remove(slot);
        });
        if let Change::NewStep(slots) | Change::LoopTurns(slots) = change {
            slots.iter().for_each(|(slot, _)| {
                self.live.remove(slot);
            });
        }
        dies.iter().for_each(|slot| {
            self.live.remove(slot);
        });
        let dead_after = self.dead_below(place);
        let depth = place.map_or(0, |parent| self.depth(parent) + 1);
        let is_warm = self.functions[call.function].warm.contains(&Self::warm_key(call));
        match place {
            None => self.held_back.clear(),
            Some(parent) if is_warm && self.node(parent).is_warm_up => {
                let set = call.params.as_ref().map(|params| params.set);
                *self.held_back.entry((call.function, call.phase as u8, set)).or_default() += 1;
            }
            Some(_) => {}
        }
        let tail = self.path.split_off(depth);
        let node =
            node.unwrap_or_else(|| self.new_node(call, expected, place, dead_before, dead_after, ready));
        let answers_step = self.requested && !matches!(change, Change::Extends | Change::DropsUnneededTail);
        if place.is_none() || answers_step {
            self.step += 1;
        }
        self.requested &= !answers_step;
        self.runs += 1;
        let runs = self.runs;
        let data = self.nodes[node].as_mut().unwrap();
        if matches!(expected, Expected::Replay { .. }) && !std::mem::replace(&mut data.was_replayed, true) {
            self.functions[call.function].unreplayed.remove();
        }
        data.epoch += 1;
        data.last_used = runs;
        if let (Some(params), Some(given)) = (&mut data.params, &call.params) {
            (params.set, params.version) = (given.set, given.version);
        }
        let epoch = data.epoch;
        self.ended_warm_ups.clear();
        for entry in &tail {
            if self.nodes[entry.node].as_ref().is_some_and(|node| node.is_warm_up) {
                self.nodes[entry.node] = None;
                self.ended_warm_ups.push(entry.node);
            }
        }
        let token = (call.phase == Phase::Forward).then(|| {
            self.tokens.push(true);
            self.tokens.len() - 1
        });
        if let Some(token) = call.token {
            self.end_token(token);
        }
        self.path.push(REntry { node, epoch, token });
        self.state = match expected {
            Expected::Replay { .. } => PathState::Replaying,
            Expected::Record { .. } => PathState::Recording,
            _ => PathState::WarmUp,
        };
        if let Some(last) = self.last.and_then(|last| self.nodes[last].as_mut()) {
            last.successor = Some(node);
        }
        self.predicted = self.node(node).successor;
        self.last = Some(node);
        self.tick(call.function);
        if let Expected::Record { .. } = expected {
            self.make_room(node);
        }
        let fresh: Vec<_> = self.slots(node).collect();
        self.live.extend(fresh);
        node
    }

    fn new_node(
        &mut self,
        call: &RCall,
        expected: &Expected,
        place: Place,
        dead_before: BTreeSet<RSlot>,
        dead_after: BTreeSet<RSlot>,
        ready: bool,
    ) -> usize {
        let is_warm_up = !matches!(expected, Expected::Record { .. });
        if let Expected::Record { closest, demotions, .. } = expected {
            let changed = closest.map_or(Vec::new(), |closest| self.changed(closest, call));
            if closest.is_some() && changed.is_empty() {
                self.rerecordings.entry((place, call.function)).or_default().add();
            }
            let function = &mut self.functions[call.function];
            function.unreplayed.add();
            for change in changed {
                function.changes.entry(change).or_default().add();
            }
            for demotion in demotions {
                function.demoted.insert(*demotion);
                function.changes.remove(demotion);
            }
        } else if ready {
            self.functions[call.function].warm.insert(Self::warm_key(call));
        }
        let inputs = (0..call.inputs.len()).map(|index| {
            let input = &call.inputs[index];
            (input.signature, self.role(call, index, place), input.mutated)
        });
        let node = RNode {
            function: call.function,
            phase: call.phase,
            parent: place,
            epoch: 0,
            inputs: inputs.collect(),
            params: call.params.clone(),
            staged_params: self.functions[call.function]
                .demoted
                .iter()
                .filter_map(|demotion| match demotion {
                    RDemotion::Param(index) => Some(*index),
                    RDemotion::Input(_) => None,
                })
                .collect(),
            dead_before,
            dead_after,
            is_warm_up,
            last_used: 0,
            was_replayed: false,
            successor: None,
        };
        self.nodes.push(Some(node));
        self.nodes.len() - 1
    }

    fn make_room(&mut self, node: usize) {
        self.evicted.clear();
        let (place, function) = (self.node(node).parent, self.node(node).function);
        let same = |this: &Self| {
            let data = this.node(node);
            let all = this.children(place, function);
            let twin = |id: &usize| {
                let other = this.node(*id);
                let visible = |node: &RNode| {
                    node.params.as_ref().map(|params| {
                        (0..)
                            .zip(params.addresses.clone())
                            .filter(|(index, _)| !node.staged_params.contains(index))
                            .collect::<Vec<_>>()
                    })
                };
                (other.phase, &other.inputs, &other.staged_params, visible(other))
                    == (data.phase, &data.inputs, &data.staged_params, visible(data))
            };
            all.into_iter().filter(twin).collect::<Vec<_>>()
        };
        let limits = self.limits;
        self.shrink(&same, limits.liveness_variants);
        self.shrink(&|this: &Self| this.children(place, function), limits.siblings);
        self.shrink(&|this: &Self| this.recordings_of(function), limits.recordings_per_function);
    }

    fn shrink(&mut self, list: &dyn Fn(&Self) -> Vec<usize>, limit: u32) {
        loop {
            let nodes = list(self);
            let free = nodes.iter().filter(|id| self.may_go(**id, self.path.len()));
            let oldest = free.min_by_key(|id| self.node(**id).last_used).copied();
            match oldest {
                Some(oldest) if nodes.len() > limit as usize => self.remove(oldest),
                _ => break,
            }
        }
    }

    /// Removes a node and all below it.
    pub(super) fn remove(&mut self, node: usize) {
        let below = |id: usize| self.ancestors(Some(id)).contains(&node);
        let gone: Vec<_> =
            (0..self.nodes.len()).filter(|id| self.nodes[*id].is_some() && below(*id)).collect();
        for id in gone {
            self.nodes[id] = None;
            self.rerecordings.retain(|(place, _), _| *place != Some(id));
            self.evicted.insert(id);
        }
    }
}
