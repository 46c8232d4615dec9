//! What is measured: one row for each shape of a call, one column for each way of making it.

use std::hint::black_box;

use graphgrove_replay::Method;
use graphgrove_storage::Tensor;

use crate::cases::{Bare, Case, PLAIN, Shape};
use crate::timing::{Times, Timing};

/// The ways of making a call, in the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// The launch alone.
    Null,
    /// A replay whose outputs are let go of together.
    Dropped,
    /// A replay, and each of its outputs taken by its number.
    OneByOne,
    /// A replay, and all of its outputs taken into a list.
    AllAtOnce,
    /// The reference path, which makes each output by itself.
    Reference,
}

impl Column {
    pub(crate) const ALL: [Self; 5] =
        [Self::Null, Self::Dropped, Self::OneByOne, Self::AllAtOnce, Self::Reference];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Null => "null_launch",
            Self::Dropped => "dropped",
            Self::OneByOne => "one_by_one",
            Self::AllAtOnce => "all_at_once",
            Self::Reference => "reference",
        }
    }
}

/// A shape of a call, and what it takes in each column.
pub(crate) struct Row {
    /// What is counted.
    pub(crate) what: &'static str,
    pub(crate) count: u64,
    bare: &'static mut Bare,
    fast: Calls,
    reference: Calls,
    times: [Times; Column::ALL.len()],
}

/// A case, and the list that its outputs go to.
struct Calls {
    case: &'static mut Case,
    list: Vec<Option<Tensor>>,
}

impl Calls {
    fn new(shape: Shape) -> Self {
        let case = Case::new(shape);
        Self { list: case.list(), case }
    }

    fn take_each(&mut self) {
        self.case.replay_and_take_each(&mut self.list);
    }

    fn take_all(&mut self) {
        self.case.replay_and_take_all(&mut self.list);
    }

    fn let_go(&mut self) {
        // Whoever measures calls that were refused measures nothing.
        assert!(!self.list.is_empty(), "no outputs");
        self.list.clear();
    }
}

impl Row {
    fn new(what: &'static str, count: u64, shape: Shape) -> Self {
        Self {
            what,
            count,
            bare: Bare::new(),
            fast: Calls::new(shape),
            reference: Calls::new(Shape { method: Method::Reference, ..shape }),
            times: Default::default(),
        }
    }

    /// Makes some calls in each column.
    pub(crate) fn measure(&mut self, timing: &mut Timing) {
        let Self { bare, fast, reference, times, .. } = self;
        let [null, dropped, one_by_one, all_at_once, by_reference] = times;
        timing.calls(null, bare, |bare| assert!(bare.launch()), |_| {});
        timing.calls(dropped, &mut *fast.case, |case| drop(black_box(case.replay())), |_| {});
        timing.calls(one_by_one, fast, Calls::take_each, Calls::let_go);
        timing.calls(all_at_once, fast, Calls::take_all, Calls::let_go);
        timing.calls(by_reference, reference, Calls::take_each, Calls::let_go);
    }

    /// How many calls were timed in each column.
    pub(crate) fn calls(&self) -> usize {
        self.times.iter().map(Times::calls).min().unwrap_or(0)
    }

    /// The median of a column in nanoseconds, where an empty call takes `empty`.
    pub(crate) fn median(&self, column: Column, empty: f64) -> f64 {
        self.times.get(column as usize).map_or(0.0, |times| times.median(empty))
    }
}

/// All rows, each with nodes of its own.
pub(crate) fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for outputs in [1, 10, 50, 160, 320] {
        rows.push(Row::new("outputs", outputs.into(), Shape { outputs, ..PLAIN }));
    }
    for (what, moving) in [("staged inputs, same addresses", false), ("staged inputs, all elsewhere", true)] {
        for staged in [0_u16, 1, 8, 32, 128] {
            let shape = Shape { staged: staged.into(), moving, ..PLAIN };
            rows.push(Row::new(what, staged.into(), shape));
        }
    }
    for depth in [1_u16, 10, 1000] {
        rows.push(Row::new("depth of the path", depth.into(), Shape { depth: depth.into(), ..PLAIN }));
    }
    for siblings in [1_u16, 1000] {
        let shape = Shape { depth: 1, siblings: siblings.into(), ..PLAIN };
        rows.push(Row::new("siblings", siblings.into(), shape));
    }
    for params in [0, 100, 10_000] {
        rows.push(Row::new("parameters, unchanged", params, Shape { params, ..PLAIN }));
    }
    rows
}
