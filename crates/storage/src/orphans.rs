//! Sheets whose slab went on another thread than their home, while handles of them were left.
//!
//! The handles free a sheet by themselves: the last of a word takes the word's one out of the sheet's references. Only where
//! the last two of a word go at the same moment, one at home and one elsewhere, may both leave it to the other. While there
//! is a slab it tidies up. Of a slab that has gone, the sheet stays on a list here, and whoever lets go of one of its
//! references looks at it again; the home thread looks at all of the list at its end, and so does each slab that is made or
//! goes.
//!
//! A sheet leaves the list by the one who took the last of its references but the list's, by letting go or by tidying up, and
//! by nobody else. Were it whoever sees it first, another thread's look could take it from the one who drops the last handle,
//! and memory would go back a moment after that drop instead of within it.

use std::collections::BTreeMap;

use crate::hold::SheetRef;
use crate::sync::{AtomicUsize, Mutex, Ordering, global, lock};

// An (address, sheet) pair means: the sheet lies there. By address, so that one that is let go of need not look at the others:
// whoever keeps an output of every run may have any number of them.
global! { static ORPHANS: Mutex<BTreeMap<usize, SheetRef>> = Mutex::new(BTreeMap::new()); }
// How many there are: whoever finds none need not lock the list, and leaves what is being added to whoever adds it.
global! { static COUNT: AtomicUsize = AtomicUsize::new(0); }

/// Puts a sheet on the list.
pub(crate) fn leave(sheet: &SheetRef) {
    let kept = sheet.clone();
    let mut list = lock(&ORPHANS);
    // Under the lock, so that whoever finds the sheet to be an orphan finds it on the list; and after the list's reference was
    // counted, so that only one reference to go can be the last but that.
    sheet.orphan();
    list.insert(sheet.address(), kept);
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Lets the sheets go of which nothing is held any more, if there are any on the list.
pub(crate) fn sweep() {
    if COUNT.load(Ordering::Relaxed) != 0 {
        sweep_all();
    }
}

/// As [`sweep`], for whoever may not see yet that there are any.
#[cold]
pub(crate) fn sweep_all() {
    let over: Vec<_> = {
        let mut list = lock(&ORPHANS);
        let over: Vec<_> =
            list.iter().filter(|(_, sheet)| sheet.tidy()).map(|(&address, _)| address).collect();
        COUNT.fetch_sub(over.len(), Ordering::Relaxed);
        over.iter().filter_map(|address| list.remove(address)).collect()
    };
    drop(over); // Without the lock, since what a ledger keeps may be anybody's.
}

/// Lets the orphan that lies at an address go if nothing of it is held any more but what the last holders have left undone.
/// It may have gone already, and another one lie there.
pub(crate) fn look_at(address: usize) {
    let over = take_if(address, |sheet| sheet.tidy());
    drop(over); // Without the lock, as above.
}

/// Lets the orphan that lies at an address go. The caller has taken out the last of its references but that of the list.
pub(crate) fn free(address: usize) {
    let over = take_if(address, |_| true);
    debug_assert!(over.is_some(), "two have let go of the last reference but the list's");
    drop(over); // Without the lock, as above.
}

fn take_if(address: usize, is_over: impl FnOnce(&SheetRef) -> bool) -> Option<SheetRef> {
    let mut list = lock(&ORPHANS);
    list.get(&address).is_some_and(is_over).then(|| COUNT.fetch_sub(1, Ordering::Relaxed))?;
    list.remove(&address)
}
