//! Storages: what owns one piece of memory, whatever the tensors that view it look like.

use std::fmt;
use std::sync::{Arc, Weak};

use graphgrove_device::DevicePtr;

use crate::block::{Block, Origin, Owner};
use crate::hold::{Hold, SheetRef};
use crate::root::{Kind, Root};
use crate::sheet::Found;
use crate::table::Place;
use crate::{Epoch, Error, SlotIndex, SlotValue, Stale, StorageId};

/// A shared handle of one piece of memory: a node's output, or memory with an owner of its own.
///
/// Clones hold the same memory. While any of them exists the memory is *live*. A storage of a node's output can go stale,
/// and then every way to its memory is an error; a storage that was copied out is found where the copy is.
#[derive(Clone)]
pub struct Storage(Root);

/// Where the value of a storage is now.
pub(crate) enum Spot {
    Slot(Place),
    Moved(Arc<Block>),
}

impl Storage {
    /// Memory from outside of the pool, for as long as `owner` is not dropped: a parameter, or a tensor of the caller's.
    #[must_use]
    pub fn outside(base: DevicePtr, bytes: u64, owner: Owner) -> Self {
        Self(Root::block(Block::new(base, bytes, Origin::Outside, Some(owner))))
    }

    /// Memory from outside of the pool that the caller keeps alive by other means.
    #[must_use]
    pub fn unowned(base: DevicePtr, bytes: u64) -> Self {
        Self(Root::block(Block::new(base, bytes, Origin::Outside, None)))
    }

    /// A block that the pool handed to the function that is running; dropping `owner` gives it back.
    #[must_use]
    pub fn pool_block(base: DevicePtr, bytes: u64, owner: Owner) -> Self {
        Self(Root::block(Block::new(base, bytes, Origin::Pool, Some(owner))))
    }

    /// What tensors without elements have: no memory and no identity.
    #[must_use]
    pub const fn empty() -> Self {
        Self(Root::EMPTY)
    }

    /// The identity of the memory; none if there is none. When a block of the pool becomes an output of a node, it gets that
    /// of its slot.
    ///
    /// # Errors
    /// [`Error::Stale`]
    pub fn id(&self) -> Result<Option<StorageId>, Error> {
        Ok(match self.kind() {
            Kind::Empty => None,
            Kind::Slot(hold) => Some(slot_id(hold)?),
            Kind::Block(block) => Some(match block.adopted() {
                Some(hold) => slot_id(hold)?,
                None => StorageId::Block(block.id),
            }),
        })
    }

    /// Where the memory starts; null if there is none.
    ///
    /// # Errors
    /// [`Error::Stale`]
    #[inline]
    pub fn base(&self) -> Result<DevicePtr, Error> {
        Ok(self.place()?.base)
    }

    /// The length of the memory in bytes.
    ///
    /// # Errors
    /// [`Error::Stale`]
    pub fn bytes(&self) -> Result<u64, Error> {
        Ok(self.place()?.bytes)
    }

    /// Whether what gives the memory back is a `T`. Memory of a slot is given back by its node, and has no owner of its own.
    ///
    /// # Errors
    /// [`Error::Stale`]
    #[inline]
    pub fn is_owned_by<T: std::any::Any>(&self) -> Result<bool, Error> {
        let block = match self.kind() {
            Kind::Empty => return Ok(false),
            Kind::Slot(hold) => match hold.find()? {
                Spot::Moved(copy) => return Ok(copy.is_owned_by::<T>()),
                Spot::Slot(_) => return Ok(false),
            },
            Kind::Block(block) => block,
        };
        match block.adopted().map(Hold::find).transpose()? {
            None => Ok(block.is_owned_by::<T>()),
            Some(Spot::Moved(copy)) => Ok(copy.is_owned_by::<T>()),
            Some(Spot::Slot(_)) => Ok(false),
        }
    }

    /// The value in the slot of a node's output; none for any other storage, and for one that was copied out.
    ///
    /// # Errors
    /// [`Error::Stale`]
    pub fn slot_value(&self) -> Result<Option<SlotValue>, Error> {
        Ok(match self.id()? {
            Some(StorageId::Slot(value)) => Some(value),
            _ => None,
        })
    }

    /// The function whose output this is, whether or not the value is there; none for memory with an owner of its own.
    #[must_use]
    pub fn producer(&self) -> Option<&Arc<str>> {
        self.hold().map(|hold| &hold.sheet().table.producer)
    }

    /// Whether the two are the same memory. Storages without memory are never the same.
    ///
    /// # Errors
    /// [`Error::Stale`], if either is.
    pub fn is_same(&self, other: &Self) -> Result<bool, Error> {
        Ok(matches!((self.id()?, other.id()?), (Some(a), Some(b)) if a == b))
    }

    /// What became of the value, if this handle is stale.
    #[must_use]
    pub fn stale(&self) -> Option<Box<Stale>> {
        match self.place() {
            Err(Error::Stale(stale)) => Some(stale),
            _ => None,
        }
    }

    /// An observer of the storage that does not keep it live; none if there is no memory.
    #[must_use]
    pub fn watch(&self) -> Option<Watch> {
        let hold = match self.kind() {
            Kind::Empty => return None,
            Kind::Slot(hold) => hold,
            Kind::Block(block) => match block.adopted() {
                Some(hold) => hold,
                None => return Some(Watch(Watched::Block(Arc::downgrade(&*self.0.arc()?)))),
            },
        };
        Some(Watch(match hold.find() {
            Ok(Spot::Moved(copy)) => Watched::Block(Arc::downgrade(&copy)),
            _ => Watched::Slot(hold.sheet_ref(), hold.slot(), hold.value().epoch),
        }))
    }

    /// Whether this is a block of the pool that has not become an output yet.
    pub(crate) fn unadopted(&self) -> Option<&Block> {
        match self.kind() {
            Kind::Block(block) if block.origin == Origin::Pool && block.adopted().is_none() => Some(block),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind<'_> {
        self.0.kind()
    }

    #[inline]
    pub(crate) fn is_slot(&self) -> bool {
        self.0.is_slot()
    }

    /// The hold of a slot's storage.
    pub(crate) fn hold(&self) -> Option<&Hold> {
        match self.kind() {
            Kind::Slot(hold) => Some(hold),
            Kind::Block(block) => block.adopted(),
            Kind::Empty => None,
        }
    }

    #[inline]
    pub(crate) fn place(&self) -> Result<Place, Error> {
        let spot = match self.kind() {
            Kind::Slot(hold) => hold.find()?,
            Kind::Empty => return Ok(Place::NONE),
            Kind::Block(block) => match block.adopted() {
                Some(hold) => hold.find()?,
                None => return Ok(Place { base: block.base, bytes: block.bytes, offset: 0 }),
            },
        };
        Ok(match spot {
            Spot::Slot(place) => place,
            Spot::Moved(block) => Place { base: block.base, bytes: block.bytes, offset: 0 },
        })
    }
}

impl From<Hold> for Storage {
    #[inline]
    fn from(hold: Hold) -> Self {
        Self(Root::slot(hold))
    }
}

fn slot_id(hold: &Hold) -> Result<StorageId, Error> {
    Ok(match hold.find()? {
        Spot::Slot(_) => StorageId::Slot(hold.value()),
        Spot::Moved(block) => StorageId::Block(block.id),
    })
}

/// Refuses bytes that do not lie in a storage.
pub(crate) const fn check_bounds(offset: u64, span: u64, bytes: u64) -> Result<(), Error> {
    match offset.checked_add(span) {
        Some(end) if end <= bytes => Ok(()),
        _ => Err(Error::OutOfStorage { offset, span, bytes }),
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind(), self.place()) {
            (Kind::Empty, _) => f.write_str("Storage(empty)"),
            (_, Err(stale)) => write!(f, "Storage({stale})"),
            (Kind::Slot(hold), Ok(place)) => {
                write!(
                    f,
                    "Storage({}, {} bytes at {})",
                    StorageId::Slot(hold.value()),
                    place.bytes,
                    place.base
                )
            }
            (Kind::Block(block), Ok(_)) => write!(f, "Storage({block:?})"),
        }
    }
}

/// Observes a storage without keeping it live. What a [`Ledger`](crate::Ledger) keeps, it may keep.
#[derive(Clone)]
pub struct Watch(Watched);

#[derive(Clone)]
enum Watched {
    Slot(SheetRef, SlotIndex, Epoch),
    Block(Weak<Block>),
}

impl Watch {
    /// Whether somebody can still reach the storage's memory where it was: it is held, and neither stale nor moved.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.id().is_some()
    }

    /// The storage, if it is a block of the pool that somebody has and that is no output.
    pub(crate) fn unadopted(&self) -> Option<Storage> {
        let Watched::Block(block) = &self.0 else { return None };
        let block = block.upgrade()?;
        (block.origin == Origin::Pool && block.adopted().is_none()).then(|| Storage(Root::block(block)))
    }

    /// The identity of the storage's memory where it was; none if nobody can reach it there any more. That of a block
    /// changes when it becomes an output.
    #[must_use]
    pub fn id(&self) -> Option<StorageId> {
        match &self.0 {
            &Watched::Slot(ref sheet, slot, epoch) => {
                let is_here = sheet.is_held(slot)
                    && sheet.is_in_run(epoch)
                    && matches!(sheet.look(slot, epoch), Ok(Found::Here));
                is_here.then(|| StorageId::Slot(SlotValue { slab: sheet.table.id, slot, epoch }))
            }
            Watched::Block(block) => {
                let block = block.upgrade()?;
                match block.adopted() {
                    Some(hold) => {
                        matches!(hold.find(), Ok(Spot::Slot(_))).then(|| StorageId::Slot(hold.value()))
                    }
                    None => Some(StorageId::Block(block.id)),
                }
            }
        }
    }
}
