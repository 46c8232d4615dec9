//! The streams that may be adopted.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::shared::lock;

/// The raw streams that are known to be live: the driver follows a stream handle without looking whether it is one, so a
/// number that nobody vouches for must not reach it.
#[derive(Debug, Default)]
pub(crate) struct KnownStreams(Mutex<HashMap<u64, usize>>);

impl KnownStreams {
    /// Vouches for a stream once more.
    pub(crate) fn add(&self, raw: u64) {
        *lock(&self.0).entry(raw).or_default() += 1;
    }

    /// Takes one vouching back.
    pub(crate) fn remove(&self, raw: u64) {
        let mut known = lock(&self.0);
        if let Some(count) = known.get_mut(&raw) {
            *count -= 1;
            if *count == 0 {
                known.remove(&raw);
            }
        }
    }

    /// Whether somebody vouches for the stream.
    pub(crate) fn contains(&self, raw: u64) -> bool {
        lock(&self.0).contains_key(&raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_known_until_everybody_has_taken_his_word_back() {
        let known = KnownStreams::default();
        known.add(8);
        known.add(8);
        known.remove(8);
        assert!(known.contains(8));
        known.remove(8);
        assert!(!known.contains(8));
        known.remove(8);
        assert!(!known.contains(8));
    }
}
