//! Times of single calls, and their medians.

use std::time::Instant;

/// The calls in a row of each column of each round.
const CALLS: usize = 10;

/// The times of one column, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    /// How many calls were timed.
    pub(crate) fn calls(&self) -> usize {
        self.0.len()
    }

    /// The median, without what reading the clock takes.
    pub(crate) fn median(&self, empty: f64) -> f64 {
        (median(&self.0) - empty).max(0.0)
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Times calls one by one, and in between what an empty call takes.
#[derive(Debug)]
pub(crate) struct Timing {
    empty: Times,
}

impl Timing {
    pub(crate) const fn new() -> Self {
        Self { empty: Times(Vec::new()) }
    }

    /// What reading the clock twice takes, in nanoseconds.
    pub(crate) fn empty(&self) -> f64 {
        median(&self.empty.0)
    }

    /// Times some calls. What `after` does is not timed.
    pub(crate) fn calls<T>(
        &mut self,
        times: &mut Times,
        subject: &mut T,
        call: impl Fn(&mut T),
        after: impl Fn(&mut T),
    ) {
        // The first call finds the caches as another column left them.
        call(subject);
        after(subject);
        for _ in 0..CALLS {
            times.0.push(time(|| call(subject)));
            after(subject);
        }
        self.empty.0.push(time(|| {}));
    }
}

#[inline(always)]
fn time(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_secs_f64() * 1e9
}
