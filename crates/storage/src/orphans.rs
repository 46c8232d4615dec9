//! Sheets whose slab went on another thread than their home, while handles of them were left.
//!
//! The handles free a sheet by themselves: the last of a word takes the word's one out of the sheet's references. Only where
//! the last two of a word go at the same moment, one at home and one elsewhere, may both leave it to the other. While there
//! is a slab it tidies up. Of a slab that has gone, the sheet stays on a list here, and whoever lets go of one of its
//! references looks at the list; so do the home thread at its end, and each slab that is made or goes.

use crate::hold::SheetRef;
use crate::sync::{AtomicUsize, Mutex, Ordering, global, lock};

global! { static ORPHANS: Mutex<Vec<SheetRef>> = Mutex::new(Vec::new()); }
// How many there are: whoever finds none need not lock the list, and leaves what is being added to whoever adds it.
global! { static COUNT: AtomicUsize = AtomicUsize::new(0); }

/// Puts a sheet on the list.
pub(crate) fn leave(sheet: &SheetRef) {
    let mut list = lock(&ORPHANS);
    // Under the lock, so that whoever finds the sheet to be an orphan finds it on the list.
    sheet.orphan();
    list.push(sheet.clone());
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Lets the sheets go of which nothing is held any more, if there are any on the list.
pub(crate) fn sweep() {
    if COUNT.load(Ordering::Relaxed) != 0 {
        sweep_all();
    }
}

/// As [`sweep`], for whoever knows that a sheet is an orphan.
#[cold]
pub(crate) fn sweep_all() {
    let over: Vec<_> = {
        let mut list = lock(&ORPHANS);
        let over: Vec<_> = list.extract_if(.., |sheet| sheet.is_over()).collect();
        COUNT.fetch_sub(over.len(), Ordering::Relaxed);
        over
    };
    drop(over); // Without the lock, since what a ledger keeps may be anybody's.
}
