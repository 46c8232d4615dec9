//! Destruction that waits until no capture is open.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

type Destruction = Box<dyn FnOnce() + Send>;

/// Destructions that must not reach the driver while a capture is open.
///
/// A free, a destroyed event or an unloaded module in the window of a capture breaks the capture or is recorded into it
/// (pytorch/pytorch#161037, NVIDIA/TransformerEngine#2092). Every implementation of the contract owns one `Deferred`, tells
/// it when captures open and close, and passes every destruction through [`run`](Deferred::run).
///
/// The opening of a capture waits for destructions that have started, so that no capture can begin in the middle of one.
/// For the same reason a destruction must not open a capture itself. It may cause further destructions.
#[derive(Default)]
pub struct Deferred {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Default)]
struct State {
    open_captures: usize,
    running: usize,
    waiting: Vec<Destruction>,
}

impl Deferred {
    /// Nothing is waiting and no capture is open.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs the destruction at once if no capture is open, and when the last open one has closed otherwise.
    pub fn run(&self, destruction: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.open_captures > 0 {
            state.waiting.push(Box::new(destruction));
            return;
        }
        state.running += 1;
        drop(state);
        let _running = Running(self);
        destruction();
    }

    /// Says that a capture is about to open. It has to be called before the driver is.
    pub fn capture_opens(&self) {
        let mut state = self.state();
        while state.running > 0 {
            state = self.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.open_captures += 1;
    }

    /// Says that a capture has closed, and runs what has waited if it was the last. It has to be called after the driver
    /// was.
    pub fn capture_closed(&self) {
        let mut state = self.state();
        state.open_captures = state.open_captures.saturating_sub(1);
        if state.open_captures > 0 || state.waiting.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut state.waiting);
        state.running += 1;
        drop(state);
        let _running = Running(self);
        for destruction in batch {
            destruction();
        }
    }

    /// How many destructions are waiting.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a started destruction until it is over, also when it panics: a capture that waited for it could never open else.
struct Running<'a>(&'a Deferred);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.finished.notify_all();
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counted() -> (Arc<AtomicUsize>, impl Fn() -> Destruction) {
        let count = Arc::new(AtomicUsize::new(0));
        let inner = Arc::clone(&count);
        (count, move || {
            let inner = Arc::clone(&inner);
            Box::new(move || {
                inner.fetch_add(1, Ordering::Relaxed);
            })
        })
    }

    #[test]
    fn without_a_capture_destruction_happens_at_once() {
        let (count, destruction) = counted();
        let deferred = Deferred::new();
        deferred.run(destruction());
        assert_eq!((count.load(Ordering::Relaxed), deferred.waiting()), (1, 0));
    }

    #[test]
    fn destruction_waits_for_the_last_open_capture() {
        let (count, destruction) = counted();
        let deferred = Deferred::new();
        deferred.capture_opens();
        deferred.capture_opens();
        deferred.run(destruction());
        deferred.capture_closed();
        assert_eq!((count.load(Ordering::Relaxed), deferred.waiting()), (0, 1));
        deferred.capture_closed();
        assert_eq!((count.load(Ordering::Relaxed), deferred.waiting()), (1, 0));
    }

    #[test]
    fn a_destruction_may_cause_another_one() {
        let (count, destruction) = counted();
        let deferred = Arc::new(Deferred::new());
        deferred.capture_opens();
        let (outer, inner) = (Arc::clone(&deferred), destruction());
        deferred.run(move || outer.run(inner));
        deferred.capture_closed();
        assert_eq!((count.load(Ordering::Relaxed), deferred.waiting()), (1, 0));
    }

    #[test]
    fn a_capture_opens_only_after_a_started_destruction_has_ended() {
        let deferred = Arc::new(Deferred::new());
        let ended = Arc::new(AtomicUsize::new(0));
        let (started, has_started) = std::sync::mpsc::channel();
        let worker = std::thread::spawn({
            let (deferred, ended) = (Arc::clone(&deferred), Arc::clone(&ended));
            move || {
                deferred.run(move || {
                    started.send(()).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    ended.store(1, Ordering::SeqCst);
                });
            }
        });
        has_started.recv().unwrap();
        deferred.capture_opens();
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        worker.join().unwrap();
    }

    #[test]
    fn closing_more_often_than_opening_leaves_nothing_open() {
        let (count, destruction) = counted();
        let deferred = Deferred::new();
        deferred.capture_closed();
        deferred.run(destruction());
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
