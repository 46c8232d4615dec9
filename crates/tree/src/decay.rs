//! A count that falls by itself as calls go by, so that a budget recovers instead of latching.

/// A count that falls by one in every `period` ticks of a clock the owner keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DecayingCount {
    /// The count at `since`.
    count: u32,
    since: u64,
}

impl DecayingCount {
    /// The count at tick `now`. A period of zero never decays.
    pub(crate) fn at(self, now: u64, period: u32) -> u32 {
        let fallen = now.saturating_sub(self.since).checked_div(u64::from(period)).unwrap_or(0);
        u32::try_from(u64::from(self.count).saturating_sub(fallen)).unwrap_or(0)
    }

    /// Adds one at tick `now`.
    pub(crate) fn add(&mut self, now: u64, period: u32) {
        let count = self.at(now, period);
        if count == 0 {
            self.since = now;
        } else {
            // Keep the part of a period that has already gone by, or frequent additions would stop the decay.
            self.since += u64::from(self.count - count) * u64::from(period);
        }
        self.count = count.saturating_add(1);
    }

    /// Takes one off at tick `now`, if there is one.
    pub(crate) fn remove(&mut self, now: u64, period: u32) {
        let count = self.at(now, period);
        self.since += u64::from(self.count - count) * u64::from(period);
        self.count = count.saturating_sub(1);
    }

    /// How many ticks from `now` on the count takes to fall below `limit`; a period of zero never gets there.
    pub(crate) fn ticks_until_below(self, limit: u32, now: u64, period: u32) -> u64 {
        if self.at(now, period) < limit {
            return 0;
        }
        if period == 0 || limit == 0 {
            return u64::MAX;
        }
        let falls = u64::from(self.count - limit) + 1;
        (self.since + falls * u64::from(period)).saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_falls_by_one_each_period() {
        let mut count = DecayingCount::default();
        count.add(100, 10);
        count.add(100, 10);
        assert_eq!([100, 109, 110, 119, 120, 999].map(|now| count.at(now, 10)), [2, 2, 1, 1, 0, 0]);
    }

    #[test]
    fn adding_does_not_restart_the_period() {
        let mut count = DecayingCount::default();
        count.add(0, 10);
        count.add(0, 10);
        count.add(15, 10);
        assert_eq!((count.at(15, 10), count.at(19, 10), count.at(20, 10)), (2, 2, 1));
    }

    #[test]
    fn taking_off_does_not_restart_the_period_and_ends_at_zero() {
        let mut count = DecayingCount::default();
        (0..4).for_each(|_| count.add(0, 10));
        count.remove(15, 10);
        assert_eq!([15, 19, 20, 30].map(|now| count.at(now, 10)), [2, 2, 1, 0]);
        count.remove(99, 10);
        assert_eq!(count.at(99, 10), 0);
        count.add(105, 10);
        assert_eq!([114, 115].map(|now| count.at(now, 10)), [1, 0]);
    }

    #[test]
    fn the_time_until_a_limit_is_when_the_count_first_falls_below_it() {
        let mut count = DecayingCount::default();
        for _ in 0..5 {
            count.add(7, 10);
        }
        let wait = count.ticks_until_below(3, 9, 10);
        assert_eq!(wait, 28);
        assert_eq!((count.at(9 + wait - 1, 10), count.at(9 + wait, 10)), (3, 2));
        assert_eq!(count.ticks_until_below(6, 9, 10), 0);
        assert_eq!(count.ticks_until_below(0, 9, 10), u64::MAX);
    }

    #[test]
    fn a_period_of_zero_never_decays() {
        let mut count = DecayingCount::default();
        count.add(0, 0);
        assert_eq!((count.at(u64::MAX, 0), count.ticks_until_below(1, 0, 0)), (1, u64::MAX));
    }
}
