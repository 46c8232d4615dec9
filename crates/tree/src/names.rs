//! What signatures are called in reports.

use crate::Signature;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How many names are kept. A signature whose name is gone is reported as its number.
const KEPT: usize = 4096;

/// The names of the signatures that were named last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    known: HashMap<Signature, Arc<str>>,
    /// Oldest first.
    order: VecDeque<Signature>,
}

impl Names {
    pub(crate) fn get(&self, signature: Signature) -> Option<&str> {
        self.known.get(&signature).map(|name| &**name)
    }

    /// Names a signature, unless it has a name.
    pub(crate) fn add(&mut self, signature: Signature, name: impl FnOnce() -> String) {
        if self.known.contains_key(&signature) {
            return;
        }
        if self.order.len() == KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(signature, name().into());
        self.order.push_back(signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_keeps_its_first_name_until_there_are_too_many() {
        let mut names = Names::default();
        let signature = |number: usize| Signature::new(number as u64);
        names.add(signature(0), || "first".into());
        names.add(signature(0), || unreachable!("it has a name"));
        assert_eq!((names.get(signature(0)), names.get(signature(1))), (Some("first"), None));
        (1..KEPT).for_each(|number| names.add(signature(number), || number.to_string()));
        assert_eq!(names.get(signature(0)), Some("first"));
        names.add(signature(KEPT), || "last".into());
        assert_eq!((names.get(signature(0)), names.get(signature(1))), (None, Some("1")));
        assert_eq!((names.get(signature(KEPT)), names.known.len()), (Some("last"), KEPT));
    }
}
