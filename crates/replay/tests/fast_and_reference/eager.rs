//! The same programs computed plainly.

use graphgrove_storage::Readers;

use crate::function::{Do, Fitted, N, Resolved, Return};

/// Memory: its elements, and whether a new step makes its handles stale.
#[derive(Clone, Debug)]
struct Memory {
    elements: Vec<i32>,
    ends_with_step: bool,
    is_over: bool,
}

/// All memory that there ever was.
#[derive(Debug, Default)]
pub(crate) struct Eager {
    memory: Vec<Memory>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    memory: usize,
    from: u64,
    pub(crate) count: u64,
    pub(crate) stride: u64,
}

impl View {
    pub(crate) fn cut(self, cut: Fitted) -> Self {
        let Fitted { from, count, step } = cut;
        // A single element keeps the stride that it had, as a slice of a tensor does.
        let stride = if step > 0 && count == 1 { self.stride } else { self.stride * step };
        Self { from: self.from + from * self.stride, count, stride, ..self }
    }

    fn places(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |i| (self.from + i * self.stride) as usize)
    }
}

/// What a call leaves: of each output the view, for the caller and for the backward.
pub(crate) type Left = Vec<(Option<View>, Readers)>;

impl Eager {
    /// Memory from outside, which counts up from a number.
    pub(crate) fn outside(&mut self, first: i32, elements: u64, from: u64) -> View {
        let elements = (0..elements).map(|i| first.wrapping_add(i as i32)).collect();
        self.memory.push(Memory { elements, ends_with_step: false, is_over: false });
        View { memory: self.memory.len() - 1, from, count: N, stride: 1 }
    }

    fn fresh(&mut self, elements: Vec<i32>) -> View {
        let count = elements.len() as u64;
        self.memory.push(Memory { elements, ends_with_step: true, is_over: false });
        View { memory: self.memory.len() - 1, from: 0, count, stride: 1 }
    }

    /// The elements of a view; none if its handles are stale.
    pub(crate) fn values(&self, view: View) -> Option<Vec<i32>> {
        let memory = &self.memory[view.memory];
        (!memory.is_over).then(|| view.places().map(|place| memory.elements[place]).collect())
    }

    /// Whether the caller may write there: memory of its own, without gaps.
    pub(crate) fn is_own(&self, view: View) -> bool {
        !self.memory[view.memory].ends_with_step && view.stride == 1
    }

    pub(crate) fn write(&mut self, view: View, first: i32) {
        for (i, place) in view.places().enumerate() {
            self.memory[view.memory].elements[place] = first.wrapping_add(i as i32);
        }
    }

    pub(crate) fn end_step(&mut self) {
        for memory in &mut self.memory {
            memory.is_over |= memory.ends_with_step;
        }
    }

    /// Calls a function with these tensors, parameters last.
    pub(crate) fn call(
        &mut self,
        function: &Resolved,
        tensors: &[View],
        values: i32,
        constant: View,
    ) -> Left {
        let mut regs = tensors.to_vec();
        let read = |eager: &Self, view: View| -> Vec<i32> {
            view.places().map(|place| eager.memory[view.memory].elements[place]).collect()
        };
        for step in &function.steps {
            match *step {
                Do::Sum { a, b, more } => {
                    let (a, b) = (read(self, regs[a]), read(self, regs[b]));
                    let more = more.wrapping_add(values);
                    let sum = a.iter().zip(&b).map(|(a, b)| a.wrapping_add(*b).wrapping_add(more)).collect();
                    regs.push(self.fresh(sum));
                }
                Do::Bump { to, by } => {
                    for place in regs[to].places() {
                        let element = &mut self.memory[regs[to].memory].elements[place];
                        *element = element.wrapping_add(by);
                    }
                }
                Do::View { of, cut } => regs.push(regs[of].cut(cut.fit(regs[of].count))),
                Do::Drop { .. } => {}
                Do::Copy { of } => {
                    let same = read(self, regs[of]);
                    regs.push(self.fresh(same));
                }
            }
        }
        let left = |ret: &Return| match *ret {
            Return::Reg(reg, readers) => (Some(regs[reg]), readers),
            Return::Constant => (Some(constant), Readers::Caller),
            Return::Empty | Return::NotTensor => (None, Readers::Caller),
        };
        function.rets.iter().map(left).collect()
    }
}
