//! The identity of a call: one word over everything that must be equal for a recording to fit, liveness
//! apart.

use crate::call::{Call, Params, Source};
use crate::function::InputSet;
use crate::{InputIndex, NodeId, ParamIndex, Slot};
use slotmap::Key;

/// Folds words into one, in order. Equal sequences give equal words; unequal ones differ but for chance, and
/// whoever looks something up by the word compares in full afterwards.
#[derive(Clone, Copy, Debug)]
struct Fold(u64);

impl Fold {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn add(&mut self, word: u64) {
        // The multiplier is the golden ratio's fraction, odd and without pattern; the fold keeps the high
        // half too.
        let product = u128::from(self.0.rotate_left(23) ^ word ^ 0x5851_F42D_4C95_7F2D)
            * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn add_slot(&mut self, slot: Slot) {
        self.add(slot.node.data().as_ffi());
        self.add(u64::from(slot.index.get()));
    }
}

/// The identity of `call` below `parent`. At a root every managed input is staged, because its path is over.
pub(crate) fn of_call(
    parent: Option<NodeId>,
    call: &Call<'_>,
    staged: &InputSet,
    params_fingerprint: Option<u64>,
) -> u64 {
    let mut fold = Fold::new(parent.map_or(0, |node| node.data().as_ffi()));
    fold.add(u64::from(call.function.get()));
    fold.add(call.kind.phase() as u64);
    for (index, input) in (0..).map(InputIndex::new).zip(call.inputs) {
        fold.add(input.signature.get());
        fold.add(u64::from(input.mutated));
        match input.source {
            Source::Managed { value, .. } if parent.is_some() && !staged.contains(index) => {
                fold.add(2);
                fold.add_slot(value.slot);
            }
            Source::Managed { .. } | Source::Staged => fold.add(1),
            Source::Scalar => fold.add(0),
        }
    }
    if let Some(fingerprint) = params_fingerprint {
        fold.add(fingerprint);
    }
    fold.0
}

/// The fingerprint of the parameters that are not staged.
pub(crate) fn of_params(params: &Params<'_>, staged: &[ParamIndex]) -> u64 {
    let mut fold = Fold::new(params.addresses.len() as u64);
    let mut staged = staged.iter().map(|index| index.get() as usize).peekable();
    for (index, address) in params.addresses.iter().enumerate() {
        if staged.next_if_eq(&index).is_none() {
            fold.add(address.get());
        }
    }
    fold.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Address, Epoch, FunctionId, Input, ParamSetId, ParamVersion, Signature, SlotIndex, SlotValue, TokenId,
    };
    use slotmap::SlotMap;

    fn nodes() -> [NodeId; 2] {
        let mut map: SlotMap<NodeId, ()> = SlotMap::with_key();
        [map.insert(()), map.insert(())]
    }

    #[test]
    fn the_highest_bit_of_a_word_reaches_the_low_bits_of_the_fold() {
        let after = |word| {
            let mut fold = Fold::new(0);
            fold.add(word);
            fold.0 as u32
        };
        assert_ne!(after(1), after(1 | 1 << 63), "tables look at the low bits first");
    }

    #[test]
    fn everything_that_must_be_equal_is_in_the_identity() {
        let [a, b] = nodes();
        let sig = Signature::new(5);
        let out = |node, index| SlotValue::new(node, SlotIndex::new(index), Epoch::new(1));
        let f = FunctionId::new(1);
        let lists = [
            vec![],
            vec![Input::staged(sig)],
            vec![Input::staged(sig).mutated()],
            vec![Input::staged(Signature::new(6))],
            vec![Input::scalar(5)],
            vec![Input::managed(sig, out(a, 0))],
            vec![Input::managed(sig, out(a, 1))],
            vec![Input::managed(sig, out(b, 0))],
            vec![Input::managed(sig, out(b, 0)).mutated()],
            vec![Input::staged(sig), Input::staged(sig)],
        ];
        let none = InputSet::default();
        let mut all: Vec<u64> = Vec::new();
        for list in &lists {
            all.push(of_call(Some(a), &Call::inference(f, list), &none, None));
            all.push(of_call(Some(a), &Call::forward(f, list), &none, None));
            all.push(of_call(Some(a), &Call::backward(f, TokenId::default(), list), &none, None));
            all.push(of_call(Some(a), &Call::inference(FunctionId::new(2), list), &none, None));
            all.push(of_call(Some(b), &Call::inference(f, list), &none, None));
            all.push(of_call(Some(a), &Call::inference(f, list), &none, Some(1)));
            all.push(of_call(Some(a), &Call::inference(f, list), &none, Some(2)));
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn what_may_differ_is_not_in_the_identity() {
        let [a, _] = nodes();
        let sig = Signature::new(5);
        let out = |epoch| SlotValue::new(a, SlotIndex::new(0), Epoch::new(epoch));
        let f = FunctionId::new(1);
        let none = InputSet::default();
        let of =
            |parent, input, staged: &InputSet| of_call(parent, &Call::inference(f, &[input]), staged, None);
        let kept = of(Some(a), Input::managed(sig, out(1)), &none);
        assert_eq!(kept, of(Some(a), Input::given_up(sig, out(2)), &none));
        assert_eq!(of(None, Input::staged(sig), &none), of(None, Input::managed(sig, out(1)), &none));
        let mut first = InputSet::default();
        first.insert(InputIndex::new(0));
        assert_eq!(of(Some(a), Input::staged(sig), &none), of(Some(a), Input::managed(sig, out(1)), &first));
    }

    #[test]
    fn a_fingerprint_leaves_out_staged_parameters_and_nothing_else() {
        let of = |addresses: [u64; 4], staged: &[u32]| {
            let addresses = addresses.map(Address::new);
            let params =
                Params { set: ParamSetId::new(1), version: ParamVersion::new(1), addresses: &addresses };
            of_params(&params, &staged.iter().copied().map(ParamIndex::new).collect::<Vec<_>>())
        };
        assert_ne!(of([1, 2, 3, 4], &[]), of([1, 2, 9, 4], &[]));
        assert_eq!(of([1, 2, 3, 4], &[2]), of([1, 2, 9, 4], &[2]));
        assert_ne!(of([1, 2, 3, 4], &[2]), of([1, 2, 3, 9], &[2]));
        assert_eq!(of([1, 2, 3, 4], &[0, 3]), of([9, 2, 3, 9], &[0, 3]));
    }

    #[test]
    fn each_bit_of_a_call_changes_about_half_of_its_identity() {
        let f = FunctionId::new(1);
        let of = |signature| {
            let inputs = [Input::staged(Signature::new(signature))];
            of_call(None, &Call::inference(f, &inputs), &InputSet::default(), None)
        };
        for bit in 0..64 {
            let changed: u32 =
                (0..64).map(|seed: u64| (of(seed * 77) ^ of((seed * 77) ^ (1 << bit))).count_ones()).sum();
            assert!((24 * 64..=40 * 64).contains(&changed), "bit {bit} changes {changed} of 4096 bits");
        }
    }
}
