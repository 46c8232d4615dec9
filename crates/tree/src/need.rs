//! What a path needs of a storage at a new step: as much as the most demanding of its aliases.

use crate::node::Role;
use crate::output::{Fate, OldOutput, OutputKind};
use crate::tree::Tree;
use crate::{Slot, SlotIndex, SlotValue, TokenId};
use std::collections::HashMap;

/// What the outputs that share one storage need of it together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// A pending backward for which one of them is saved.
    saved_for: Option<TokenId>,
    /// The greatest of their rules.
    pub(crate) rule: OldOutput,
}

impl Need {
    fn and(self, other: Self) -> Self {
        Self { saved_for: self.saved_for.or(other.saved_for), rule: self.rule.max(other.rule) }
    }

    /// What becomes of the storage when its path ends.
    pub(crate) fn fate(self) -> Fate {
        match (self.saved_for, self.rule) {
            (Some(token), _) => Fate::CopyOutForBackward(token),
            (None, OldOutput::Error) => Fate::Invalidate,
            (None, OldOutput::CopyOut | OldOutput::Keep) => Fate::CopyOut,
        }
    }
}

/// A (slot -> need) pair means: the outputs of the path that own or share this storage need it so.
#[derive(Clone, Debug)]
pub(crate) struct Needs(HashMap<Slot, Need>);

impl Needs {
    pub(crate) fn of(&self, value: SlotValue) -> Need {
        self.0.get(&value.slot).copied().unwrap_or_default()
    }
}

impl Tree {
    /// What the path needs of its storages, found in one walk over it.
    pub(crate) fn needs(&self) -> Needs {
        let mut needs: HashMap<Slot, Need> = HashMap::new();
        for entry in self.path.entries() {
            let Some(node) = self.nodes.get(entry.node) else { continue };
            for (index, output) in (0..).map(SlotIndex::new).zip(&node.outputs) {
                let storage = match output.kind {
                    OutputKind::Fresh => Some(Slot { node: entry.node, index }),
                    OutputKind::AliasOfOutput(index) => Some(Slot { node: entry.node, index }),
                    OutputKind::AliasOfInput(input) => match node.inputs.get(input.get() as usize) {
                        Some(read) => match read.role {
                            Role::Managed { slot, .. } => Some(slot),
                            Role::Staged(_) => self.path.staged_from(node.depth, input),
                            Role::Scalar => None,
                        },
                        None => None,
                    },
                    OutputKind::Persistent | OutputKind::Empty | OutputKind::NotTensor => None,
                };
                if let Some(slot) = storage {
                    let saved_for = entry.token.filter(|_| output.saved);
                    let need = Need { saved_for, rule: node.rule_for(index) };
                    let all = needs.entry(slot).or_default();
                    *all = all.and(need);
                }
            }
        }
        for (slot, token) in self.path.saved() {
            let all = needs.entry(slot).or_default();
            *all = all.and(Need { saved_for: Some(token), rule: OldOutput::Error });
        }
        Needs(needs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backward_comes_before_any_rule_and_the_greatest_rule_before_all_others() {
        let token = TokenId::default();
        let plain = |rule| Need { saved_for: None, rule };
        let saved = Need { saved_for: Some(token), rule: OldOutput::Error };
        let [error, copy, keep] = [OldOutput::Error, OldOutput::CopyOut, OldOutput::Keep].map(plain);
        assert_eq!([error, copy, keep].map(Need::fate), [Fate::Invalidate, Fate::CopyOut, Fate::CopyOut]);
        assert_eq!((copy.and(keep).rule, keep.and(error).rule), (OldOutput::Keep, OldOutput::Keep));
        for other in [error, copy, keep] {
            assert_eq!(other.and(saved).fate(), Fate::CopyOutForBackward(token));
            assert_eq!(saved.and(other).fate(), Fate::CopyOutForBackward(token));
        }
    }
}
