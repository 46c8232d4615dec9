//! What a storage is, in two words.
//!
//! They are two plain words, and not an enum of the same size, so that a storage and a tensor that are passed on travel in
//! registers. An enum is put together in memory piece by piece and copied from there whole, for which the processor waits
//! until every piece has left its store buffer: taking 320 outputs into a list takes four times as long like that.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::block::Block;
use crate::hold::Hold;

/// One holder of a slot, one count of a block, or neither.
///
/// The first fields are those of a [`Hold`]: where `slot` is a slot's, this is one. Where it is [`BLOCK`], `at` is what
/// [`Arc::into_raw`] has returned.
#[repr(C)]
pub(crate) struct Root {
    at: NonNull<()>,
    slot: u64,
}

/// The numbers that no slot has.
const BLOCK: u64 = u64::MAX;
const EMPTY: u64 = u64::MAX - 1;

/// What a [`Root`] is.
#[derive(Clone, Copy)]
pub(crate) enum Kind<'a> {
    Slot(&'a Hold),
    Block(&'a Block),
    /// No memory at all.
    Empty,
}

// SAFETY: it stands for a hold or an `Arc` of a block, which are `Send` and `Sync` as the function below has checked.
unsafe impl Send for Root {}
// SAFETY: as above.
unsafe impl Sync for Root {}

const fn can_cross<T: Send + Sync>() {}
const _: () = {
    can_cross::<Hold>();
    can_cross::<Arc<Block>>();
};

impl Root {
    pub(crate) const EMPTY: Self = Self { at: NonNull::dangling(), slot: EMPTY };

    pub(crate) fn block(block: Arc<Block>) -> Self {
        // SAFETY: the pointer to what an `Arc` holds is never null.
        let at = unsafe { NonNull::new_unchecked(Arc::into_raw(block).cast_mut()) };
        Self { at: at.cast(), slot: BLOCK }
    }

    #[inline]
    pub(crate) fn slot(hold: Hold) -> Self {
        let (sheet, slot) = hold.into_parts();
        Self { at: sheet.cast(), slot }
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind<'_> {
        match self.slot {
            // SAFETY: this is a count of the block, so it is there for as long as this is.
            BLOCK => Kind::Block(unsafe { self.at.cast().as_ref() }),
            EMPTY => Kind::Empty,
            // SAFETY: this is a hold, and laid out as one.
            _ => Kind::Slot(unsafe { NonNull::from(self).cast().as_ref() }),
        }
    }

    #[inline]
    pub(crate) fn is_slot(&self) -> bool {
        self.slot < EMPTY
    }

    /// The `Arc` that this stands for, without its count; none if this is no block.
    pub(crate) fn arc(&self) -> Option<ManuallyDrop<Arc<Block>>> {
        // SAFETY: the pointer came from `Arc::into_raw`, and is not let go of here.
        (self.slot == BLOCK).then(|| ManuallyDrop::new(unsafe { Arc::from_raw(self.at.cast().as_ptr()) }))
    }
}

impl Clone for Root {
    #[inline]
    fn clone(&self) -> Self {
        match self.kind() {
            Kind::Slot(hold) => Self::slot(hold.clone()),
            Kind::Block(_) => {
                // SAFETY: the pointer came from `Arc::into_raw`, and this is one of its counts.
                unsafe { Arc::increment_strong_count(self.at.cast::<Block>().as_ptr()) };
                Self { at: self.at, slot: BLOCK }
            }
            Kind::Empty => Self::EMPTY,
        }
    }
}

impl Drop for Root {
    #[inline(always)]
    fn drop(&mut self) {
        match self.slot {
            EMPTY => {}
            // SAFETY: the pointer came from `Arc::into_raw`, and its count goes with this.
            BLOCK => drop(unsafe { Arc::from_raw(self.at.cast::<Block>().as_ptr()) }),
            // SAFETY: this is a hold, which goes with this.
            slot => drop(unsafe { Hold::from_parts(self.at.cast(), slot) }),
        }
    }
}
