//! Where a running function's memory comes from.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use graphgrove_device::Device;
use graphgrove_pool::pool::{Block, Owner, Pool, Request, Session};
use graphgrove_storage::{Step, Storage, Watch};

use graphgrove_pool::ranges::BlockId;

use crate::Result;
use crate::budget::is_over_budget;

/// Where a running function's memory comes from.
pub(crate) enum Memory<'a, D: Device> {
    /// The shared pool, in a warm-up or recording. Blocks of inputs that the call gives up are given back as they die.
    Session {
        session: &'a Session<D>,
        dying: Vec<(Watch, BlockId)>,
        spill: Option<&'a Spill<D>>,
        born: &'a Born,
    },
    /// A pool of its own, in a plain run.
    Plain(&'a Pool<D>),
}

/// What a warm-up or a recording has made so far. If it fails, by an error or a panic, that is nobody's: the pool goes back to where it
/// was, and who has kept a tensor of it must not read what comes to lie there.
pub(crate) struct Born {
    blocks: RefCell<Vec<Watch>>,
    function: Arc<str>,
    step: Step,
}

impl Born {
    pub(crate) fn new(function: &Arc<str>, step: Step) -> Self {
        Self { blocks: RefCell::default(), function: Arc::clone(function), step }
    }

    /// The call has not failed.
    pub(crate) fn keep(self) {
        self.blocks.borrow_mut().clear();
    }
}

impl Drop for Born {
    fn drop(&mut self) {
        graphgrove_storage::abandon(self.blocks.get_mut(), &self.function, self.step);
    }
}

/// Where a warm-up has memory from that the budget forbids its pool to hold: it has effects already, so it cannot end here.
pub(crate) struct Spill<D: Device> {
    pub(crate) pool: Pool<D>,
    pub(crate) happened: Cell<bool>,
    /// What it has handed out. Its pool knows nothing of the call's side streams, so all of it stays until they are joined.
    pub(crate) kept: RefCell<Vec<Storage>>,
}

impl<D: Device> Spill<D> {
    pub(crate) fn of(pool: &Pool<D>) -> Self {
        Self { pool: pool.clone(), happened: Cell::new(false), kept: RefCell::default() }
    }

    fn allocate(&self, request: Request) -> Result<Storage> {
        let storage = plain(&self.pool, request)?;
        self.happened.set(true);
        self.kept.borrow_mut().push(storage.clone());
        Ok(storage)
    }
}

/// A block of the pool as the owner of a storage. It is shared, so that any part of the engine may look which block it is.
pub(crate) struct Lease<D: Device>(pub(crate) Block<D>);

impl<'a, D: Device> Memory<'a, D> {
    /// A block of undefined contents.
    pub(crate) fn allocate(&mut self, bytes: u64, owner: Owner, label: &'static str) -> Result<Storage> {
        let request = Request::bytes(bytes.max(1)).owner(owner).label(label);
        Ok(match self {
            Self::Session { session, dying, spill, born } => {
                give_back(session.pool(), dying);
                let block = match (session.allocate(request), spill) {
                    (Err(error), Some(spill)) if is_over_budget(&error) => return spill.allocate(request),
                    (block, _) => block?,
                };
                let storage = Storage::pool_block(block.ptr(), block.bytes(), Box::new(Lease(block)));
                born.blocks.borrow_mut().extend(storage.watch());
                storage
            }
            Self::Plain(pool) => plain(pool, request)?,
        })
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &'a Pool<D> {
        match self {
            Self::Session { session, .. } => session.pool(),
            Self::Plain(pool) => pool,
        }
    }

    /// Whether memory of another pool was handed out too; none if that never happens.
    pub(crate) fn spilled(&self) -> Option<&'a Cell<bool>> {
        match self {
            Self::Session { spill, .. } => spill.map(|spill| &spill.happened),
            Self::Plain(_) => None,
        }
    }

    /// Gives back what has died since.
    pub(crate) fn settle(&mut self) {
        if let Self::Session { session, dying, .. } = self {
            give_back(session.pool(), dying);
            session.settle();
        }
    }
}

/// Memory outside of every recording.
pub(crate) fn plain<D: Device>(pool: &Pool<D>, request: Request) -> Result<Storage> {
    let block = pool.allocate(request)?;
    Ok(Storage::outside(block.ptr(), block.bytes(), Box::new(Lease(block))))
}

fn give_back<D: Device>(pool: &Pool<D>, dying: &mut Vec<(Watch, BlockId)>) {
    dying.retain(|(watch, block)| {
        let is_live = watch.is_live();
        if !is_live {
            pool.release(*block);
        }
        is_live
    });
}

/// The names of blocks whose liveness is known by slots from here on.
pub(crate) fn names<D: Device, I: Copy>(owners: Vec<(I, graphgrove_storage::Owner)>) -> Vec<(I, BlockId)> {
    let name = |(slot, owner): (I, graphgrove_storage::Owner)| {
        let lease = owner.downcast::<Lease<D>>().ok()?;
        Some((slot, lease.0.into_id()))
    };
    owners.into_iter().filter_map(name).collect()
}
