//! Pending backwards, counted one by one.

use crate::TokenId;
use slotmap::SlotMap;

/// The run on the path that a pending backward holds, by its depth, for as long as that run is there; none if
/// the forward ran eagerly.
pub(crate) type Held = Option<u32>;

/// A (token -> held) pair means: the backward is pending, and holds the run at that depth if the path names the
/// token there.
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

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
