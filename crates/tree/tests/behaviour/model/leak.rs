//! A count that decays, as the reference keeps it.

/// A count that falls by one in every so many calls, kept call by call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leak {
    pub(super) count: u32,
    pub(super) age: u32,
}

impl Leak {
    pub(super) fn add(&mut self) {
        if self.count == 0 {
            self.age = 0;
        }
        self.count += 1;
    }

    pub(super) fn remove(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    pub(super) fn tick(&mut self, period: u32) {
        if self.count > 0 && period > 0 {
            self.age += 1;
            if self.age == period {
                (self.count, self.age) = (self.count - 1, 0);
            }
        }
    }
}
