//! The path: what has run in this step, from a root to the current node.

use crate::liveness::Liveness;
use crate::node::Node;
use crate::{Epoch, InputIndex, NodeId, Slot, SlotIndex, SlotValue, Step, TokenId};
use slotmap::SlotMap;

/// How the last call on the path ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathState {
    /// There is no path: nothing has run, or nothing of what ran is needed.
    #[default]
    None,
    /// It warmed up: what it left has addresses that will not come again, so nothing may be recorded below
    /// it.
    WarmUp,
    /// It was recorded: the pool itself says which blocks are live.
    Recording,
    /// It was replayed: the pool knows nothing of it and has to be restored before anything is recorded
    /// below.
    Replaying,
}

/// One run on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathEntry {
    pub(crate) node: NodeId,
    pub(crate) epoch: Epoch,
    pub(crate) step: Step,
    /// The pending backward of this run.
    pub(crate) token: Option<TokenId>,
}

/// The runs from the root to the current node, and how the last of them ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    entries: Vec<PathEntry>,
    state: PathState,
    /// How many entries have a token.
    pending: usize,
    /// Outputs of the path of which a run on it read a copy: the run's depth, its input, and the output, in the
    /// order of depth and input.
    staged: Vec<(u32, InputIndex, Slot)>,
    /// Outputs of the path that a forward outside of the path may have saved: the output's depth, the output, and
    /// the pending backward.
    saved: Vec<(u32, Slot, TokenId)>,
}

impl Path {
    #[inline]
    pub(crate) fn entries(&self) -> &[PathEntry] {
        &self.entries
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn state(&self) -> PathState {
        self.state
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// The entry of `node`, if this run of the path contains it at `depth`.
    #[inline]
    pub(crate) fn entry_of(&self, node: NodeId, depth: u32) -> Option<&PathEntry> {
        self.entries.get(depth as usize).filter(|entry| entry.node == node)
    }

    /// Whether `value` was written by one of the first `len` runs of the path, and its slot owns storage.
    pub(crate) fn contains(&self, value: &SlotValue, len: u32, nodes: &SlotMap<NodeId, Node>) -> bool {
        nodes.get(value.slot.node).is_some_and(|node| {
            node.depth < len
                && node.tracked.contains(value.slot.index)
                && self.entry_of(value.slot.node, node.depth).is_some_and(|entry| entry.epoch == value.epoch)
        })
    }

    /// Whether no entry from `from` on has a live slot or a token.
    #[inline]
    pub(crate) fn is_unneeded_from<L: Liveness + ?Sized>(
        &self,
        from: usize,
        nodes: &SlotMap<NodeId, Node>,
        live: &L,
    ) -> bool {
        let tail = self.entries.get(from..).unwrap_or_default();
        let nothing_needed = self.pending == 0 && live.all_dead();
        nothing_needed || !tail.iter().rev().any(|entry| is_needed(entry, nodes, live))
    }

    /// How many entries remain when the tail that nothing needs is taken off.
    pub(crate) fn needed_len<L: Liveness + ?Sized>(&self, nodes: &SlotMap<NodeId, Node>, live: &L) -> usize {
        if self.pending == 0 && live.all_dead() {
            return 0;
        }
        self.entries.iter().rposition(|entry| is_needed(entry, nodes, live)).map_or(0, |last| last + 1)
    }

    /// Every live slot of the path, with its entry, root first.
    pub(crate) fn live_slots<'a, L: Liveness + ?Sized>(
        &'a self,
        nodes: &'a SlotMap<NodeId, Node>,
        live: &'a L,
    ) -> impl Iterator<Item = (&'a PathEntry, &'a Node, SlotValue)> {
        self.entries.iter().filter_map(|entry| Some((entry, nodes.get(entry.node)?))).flat_map(
            move |(entry, node)| {
                node.tracked.words().flat_map(move |(word, tracked)| {
                    let mut rest = live.live_word(entry.node, word) & tracked;
                    std::iter::from_fn(move || {
                        let index = SlotIndex::lowest(word, rest)?;
                        rest &= rest - 1;
                        let slot = Slot { node: entry.node, index };
                        Some((entry, node, SlotValue { slot, epoch: entry.epoch }))
                    })
                })
            },
        )
    }

    /// Takes off the entries from `len` on if they leave nothing to be seen to: no pending backward, no note and no warm-up
    /// run. Returns whether it has. The state is what it was: a run has to follow, which sets it.
    #[inline]
    pub(crate) fn cut_bare(&mut self, len: usize) -> bool {
        let is_bare = self.pending == 0 && self.staged.is_empty() && self.saved.is_empty();
        // Nothing but a warm-up hangs below a warm-up, so if the last run is none, no other is.
        if !is_bare || self.state == PathState::WarmUp {
            return false;
        }
        self.entries.truncate(len);
        true
    }

    /// Takes off the entries from `len` on and returns them.
    pub(crate) fn cut(&mut self, len: usize) -> impl Iterator<Item = PathEntry> + '_ {
        let tail = self.entries.get(len..).unwrap_or_default();
        self.pending -= tail.iter().filter(|entry| entry.token.is_some()).count();
        if len == 0 {
            self.state = PathState::None;
        }
        let kept = self.staged.iter().rposition(|(depth, ..)| (*depth as usize) < len);
        self.staged.truncate(kept.map_or(0, |last| last + 1));
        self.saved.retain(|(depth, ..)| (*depth as usize) < len);
        self.entries.drain(len.min(self.entries.len())..)
    }

    /// Appends a run. `state` says how it ran and is never [`PathState::None`].
    #[inline]
    pub(crate) fn push(&mut self, entry: PathEntry, state: PathState) {
        debug_assert_ne!(state, PathState::None, "a path with a run has a state");
        self.pending += usize::from(entry.token.is_some());
        self.entries.push(entry);
        self.state = state;
    }

    /// Notes that the run at `depth` read a copy of this output of the path.
    pub(crate) fn note_staged(&mut self, depth: u32, input: InputIndex, from: Slot) {
        self.staged.push((depth, input, from));
    }

    /// The output of the path of which the run at `depth` read a copy as this input.
    pub(crate) fn staged_from(&self, depth: u32, input: InputIndex) -> Option<Slot> {
        let found = self.staged.binary_search_by_key(&(depth, input), |(at, index, _)| (*at, *index)).ok()?;
        self.staged.get(found).map(|(_, _, from)| *from)
    }

    /// Notes that a pending backward that holds no run may read this output of the path.
    pub(crate) fn note_saved(&mut self, depth: u32, from: Slot, token: TokenId) {
        self.saved.push((depth, from, token));
    }

    /// The outputs of the path that pending backwards may read which hold no run of it.
    pub(crate) fn saved(&self) -> impl Iterator<Item = (Slot, TokenId)> + '_ {
        self.saved.iter().map(|(_, slot, token)| (*slot, *token))
    }

    /// A backward that holds no run is pending no longer.
    pub(crate) fn forget_saved(&mut self, token: TokenId) {
        self.saved.retain(|(.., saved_for)| *saved_for != token);
    }

    /// Takes the token off the run at `depth`, if that run is still this one.
    pub(crate) fn release_token(&mut self, depth: u32, token: TokenId) {
        if let Some(entry) = self.entries.get_mut(depth as usize)
            && entry.token == Some(token)
        {
            entry.token = None;
            self.pending -= 1;
        }
    }
}

fn is_needed<L: Liveness + ?Sized>(entry: &PathEntry, nodes: &SlotMap<NodeId, Node>, live: &L) -> bool {
    entry.token.is_some()
        || nodes.get(entry.node).is_some_and(|node| {
            node.tracked.words().any(|(word, tracked)| live.live_word(entry.node, word) & tracked != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_what_was_read_go_with_the_runs_that_read_it() {
        let mut path = Path::default();
        let slot = |index| Slot { node: NodeId::default(), index: SlotIndex::new(index) };
        let input = InputIndex::new;
        for depth in 0..3 {
            let entry = PathEntry {
                node: NodeId::default(),
                epoch: Epoch::default(),
                step: Step::default(),
                token: None,
            };
            path.push(entry, PathState::Replaying);
            path.note_staged(depth, input(1), slot(10 * depth + 1));
            path.note_staged(depth, input(4), slot(10 * depth + 4));
            path.note_saved(depth, slot(depth), TokenId::default());
        }
        let found =
            |path: &Path| [(0, 1), (1, 4), (1, 3), (2, 1)].map(|(at, of)| path.staged_from(at, input(of)));
        assert_eq!(found(&path), [Some(slot(1)), Some(slot(14)), None, Some(slot(21))]);
        assert_eq!(path.cut(2).count(), 1);
        assert_eq!(found(&path), [Some(slot(1)), Some(slot(14)), None, None]);
        assert_eq!(path.saved().map(|(slot, _)| slot).collect::<Vec<_>>(), [slot(0), slot(1)]);
        path.forget_saved(TokenId::default());
        assert_eq!(path.saved().count(), 0);
    }
}
