//! Functions as data: what they do is said once, and read by the device, by the eager computation and by the planner alike.

use graphgrove_replay::Route;
use graphgrove_storage::Readers;

/// The elements of a whole tensor.
pub(crate) const N: u64 = 8;
pub(crate) const PARAMS: usize = 2;

/// A function over registers: its tensors, then the parameters if it has any, then what its steps make. Positions are taken
/// modulo the registers that are there.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) arity: usize,
    pub(crate) has_params: bool,
    pub(crate) route: Route,
    pub(crate) steps: Vec<Step>,
    pub(crate) rets: Vec<Ret>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A fresh register: the sum of two, as far as the shorter one goes, and a number.
    Sum(usize, usize, i32),
    /// Adds to each element in place.
    Bump(usize, i32),
    View(usize, Cut),
    Drop(usize),
    /// A fresh register with the same elements.
    Copy(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Ret {
    Reg(usize, Readers),
    Empty,
    NotTensor,
    /// A tensor that the function got from its surroundings.
    Constant,
}

/// A view of one dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    Slice {
        from: u64,
        count: u64,
        step: u64,
    },
    /// One element many times.
    Repeat {
        at: u64,
        count: u64,
    },
}

/// A cut fitted to so many elements: first element, how many, and the stride to multiply by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fitted {
    pub(crate) from: u64,
    pub(crate) count: u64,
    pub(crate) step: u64,
}

impl Cut {
    pub(crate) fn fit(self, elements: u64) -> Fitted {
        match self {
            Self::Slice { from, count, step } => {
                let from = from % elements;
                Fitted { from, count: count.min((elements - from).div_ceil(step)), step }
            }
            Self::Repeat { at, count } => Fitted { from: at % elements, count, step: 0 },
        }
    }
}

/// A step with its registers found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    Sum { a: usize, b: usize, more: i32 },
    Bump { to: usize, by: i32 },
    View { of: usize, cut: Cut },
    Drop { reg: usize },
    Copy { of: usize },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Return {
    Reg(usize, Readers),
    Empty,
    NotTensor,
    Constant,
}

/// A function for one call's kinds of inputs.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) steps: Vec<Do>,
    pub(crate) rets: Vec<Return>,
    /// The inputs, parameters last, that the function writes to.
    pub(crate) mutated: Vec<usize>,
}

impl Function {
    /// Finds the registers. `kinds` says of each input whether it is a tensor.
    pub(crate) fn resolve(&self, kinds: &[bool]) -> Resolved {
        let inputs = kinds.iter().enumerate().filter(|(_, is_tensor)| **is_tensor).map(|(at, _)| Some(at));
        let params = if self.has_params { PARAMS } else { 0 };
        // Of each register that is there, the input in whose memory it lies.
        let mut roots: Vec<Option<Option<usize>>> =
            inputs.map(Some).chain((0..params).map(|param| Some(Some(kinds.len() + param)))).collect();
        let (mut steps, mut mutated) = (Vec::new(), Vec::new());
        let pick = |roots: &[Option<Option<usize>>], at: usize| {
            let there: Vec<usize> = (0..roots.len()).filter(|reg| roots[*reg].is_some()).collect();
            (!there.is_empty()).then(|| there[at % there.len()])
        };
        for step in &self.steps {
            let found = match *step {
                Step::Sum(a, b, more) => {
                    pick(&roots, a).zip(pick(&roots, b)).map(|(a, b)| Do::Sum { a, b, more })
                }
                Step::Bump(to, by) => pick(&roots, to).map(|to| Do::Bump { to, by }),
                Step::View(of, cut) => pick(&roots, of).map(|of| Do::View { of, cut }),
                Step::Drop(reg) => pick(&roots, reg).map(|reg| Do::Drop { reg }),
                Step::Copy(of) => pick(&roots, of).map(|of| Do::Copy { of }),
            };
            let Some(found) = found else { continue };
            match found {
                Do::Sum { .. } | Do::Copy { .. } => roots.push(Some(None)),
                Do::View { of, .. } => roots.push(roots[of]),
                Do::Drop { reg } => roots[reg] = None,
                Do::Bump { to, .. } => mutated.extend(roots[to].flatten()),
            }
            steps.push(found);
        }
        let rets = self.rets.iter().map(|ret| match *ret {
            Ret::Reg(reg, readers) => {
                pick(&roots, reg).map_or(Return::NotTensor, |reg| Return::Reg(reg, readers))
            }
            Ret::Empty => Return::Empty,
            Ret::NotTensor => Return::NotTensor,
            Ret::Constant => Return::Constant,
        });
        Resolved { steps, rets: rets.collect(), mutated }
    }
}
