//! The tree against a naive reference, under random functions, calls, drops, tokens, steps, failures and
//! evictions.

mod leak;
mod program;
mod reference;
mod reference_commit;
mod sut;

use proptest_state_machine::prop_state_machine;
use sut::Sut;

prop_state_machine! {
    /// Every decision, every effect and every state is what the naive reference says.
    #[test]
    fn the_tree_does_what_a_naive_one_does(sequential 1..120 => Sut);
}
