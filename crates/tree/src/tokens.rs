//! Pending backwards, counted one by one.

use crate::TokenId;
use slotmap::SlotMap;

/// The run on the path that a pending backward holds, by its depth; none if the run's path has ended or the
/// forward ran eagerly.
pub(crate) type Held = Option<u32>;

/// A (token -> held) pair means: the backward is pending and holds that run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens(SlotMap<TokenId, Held>);

impl Tokens {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn is_pending(&self, token: TokenId) -> bool {
        self.0.contains_key(token)
    }

    pub(crate) fn add(&mut self, held: Held) -> TokenId {
        self.0.insert(held)
    }

    /// Ends a pending backward and says which run it held; the outer option is none if it was not pending.
    pub(crate) fn remove(&mut self, token: TokenId) -> Option<Held> {
        self.0.remove(token)
    }

    /// The run's path has ended: the backward stays pending but holds nothing.
    pub(crate) fn detach(&mut self, token: TokenId) {
        if let Some(held) = self.0.get_mut(token) {
            *held = None;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
