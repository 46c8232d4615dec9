//! Telling an observer what happens, without ever holding the engine while it listens.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graphgrove_tree::NodeId;
use parking_lot::Mutex;

use crate::Event;

/// Is told what an engine does.
///
/// Events come one at a time, in the order in which things happened, behind the call that they are about: by then the engine
/// is free again, so an observer may ask it anything, and may even call functions. Events of what it does so come later, when it
/// has returned; one that makes a call for each call never comes to an end. Under calls from several threads any of them may
/// be the one that tells.
///
/// An observer that panics is told nothing more: the panic is caught, calls go on, and
/// [`EngineStats::observer_panicked`](crate::EngineStats) says so.
pub trait Observer: Send + Sync {
    /// Something has happened.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> Observer for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn event(&self, event: &Event) {
        (**self).event(event);
    }
}

/// The observer that an engine is to be made with.
#[derive(Clone, Default)]
pub(crate) struct Listener(pub(crate) Option<Arc<dyn Observer>>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observer" } else { "none" })
    }
}

/// What is told, and to whom.
pub(crate) struct Watch {
    observer: Arc<dyn Observer>,
    waiting: Mutex<VecDeque<Event>>,
    /// Held by whoever tells.
    telling: Mutex<()>,
    has_panicked: AtomicBool,
    pub(crate) seen: Mutex<Seen>,
}

/// What is remembered between events. It changes under the engine's lock alone.
#[derive(Default)]
pub(crate) struct Seen {
    /// Whether the call that is under way was told.
    pub(crate) is_called: bool,
    /// What the mode `Auto` has decided with it.
    pub(crate) judged: Option<Event>,
    /// Why that call does not replay.
    pub(crate) why: Option<String>,
    /// A (pool -> step) table.
    pub(crate) steps: HashMap<u64, u64>,
    /// A (pool -> reserved bytes) table.
    pub(crate) reserved: HashMap<u64, u64>,
    /// The numbers of recordings, which the tree does not know any more when they are gone.
    pub(crate) numbers: HashMap<(u64, NodeId), u64>,
}

impl Watch {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        Self {
            observer,
            waiting: Mutex::default(),
            telling: Mutex::default(),
            has_panicked: AtomicBool::new(false),
            seen: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, event: Event) {
        if !self.has_panicked() {
            self.waiting.lock().push_back(event);
        }
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.has_panicked.load(Ordering::Relaxed)
    }

    /// Tells what waits. Whoever comes while another one tells, or while the observer runs, leaves it to that one.
    pub(crate) fn tell(&self) {
        loop {
            let Some(_turn) = self.telling.try_lock() else { return };
            loop {
                // The queue is free again before the observer is called.
                let next = self.waiting.lock().pop_front();
                let Some(event) = next else { break };
                if catch_unwind(AssertUnwindSafe(|| self.observer.event(&event))).is_err() {
                    self.has_panicked.store(true, Ordering::Relaxed);
                    self.waiting.lock().clear();
                }
            }
            drop(_turn);
            // Somebody may have come between the last look and here, and have left it to this one.
            if self.waiting.lock().is_empty() {
                return;
            }
        }
    }
}
