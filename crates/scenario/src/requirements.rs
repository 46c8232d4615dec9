//! What a scenario needs of an engine and of a device.

use crate::check::walk;
use crate::program::{Made, Op, What};
use crate::{Capability, Comparison, Counter, Demand, Measure, ModeName, Number, Scenario, Setting};

impl Scenario {
    /// What the engine and the device have to be able to do for it, by what it says and by the words that it uses.
    #[must_use]
    pub fn needs(&self) -> Vec<Capability> {
        let mut needs = self.requires.clone();
        for setting in &self.settings {
            match setting {
                Setting::Memory(_) => needs.push(Capability::BoundedMemory),
                Setting::Budget(_) => needs.push(Capability::SmallPages),
                _ => {}
            }
        }
        for function in &self.functions {
            if function.mode == Some(ModeName::Auto) {
                needs.push(Capability::CountedTime);
            }
            for line in &function.body {
                match &line.op {
                    Op::Let(_, Made::Draw(_)) => needs.push(Capability::Random),
                    Op::Fork(_) | Op::Join(_) => needs.push(Capability::SideStreams),
                    _ => {}
                }
            }
        }
        walk(&self.statements, &mut |statement| match &statement.what {
            What::Seed(_) | What::Draw(..) => needs.push(Capability::Random),
            What::Suspend | What::Resume => needs.push(Capability::Suspend),
            What::Fault(_) => needs.push(Capability::Faults),
            What::Note(_, measure) => needs.extend(counted(measure)),
            What::Expect(expectation) => {
                if let Demand::Compare(left, how, right) = &expectation.demand {
                    needs.extend([left, right].into_iter().filter_map(counted));
                    needs.extend(paged(left, *how, right).or_else(|| paged(right, *how, left)));
                }
            }
            _ => {}
        });
        needs.sort_by_key(|need| need.word());
        needs.dedup();
        needs
    }
}

/// What a device has to count for a measure.
fn counted(measure: &Measure) -> Option<Capability> {
    match measure {
        Measure::Counter(Counter::Driver | Counter::Execs, _) => Some(Capability::DriverCalls),
        // What an exec of CUDA's costs is an estimate.
        Measure::Counter(Counter::ExecBytes, _) => Some(Capability::DeviceBytes),
        Measure::Counter(Counter::Device, _) => Some(Capability::DeviceBytes),
        _ => None,
    }
}

/// Pools grow by what a device maps at once. That nothing is held, or as much as before, can be demanded whatever that is.
fn paged(reserved: &Measure, how: Comparison, with: &Measure) -> Option<Capability> {
    let is_any = how == Comparison::Equal
        && matches!(with, Measure::Number(Number::Name(_) | Number::Literal(0)) | Measure::Counter(..));
    (matches!(reserved, Measure::Counter(Counter::Reserved | Counter::Budgeted, _)) && !is_any)
        .then_some(Capability::SmallPages)
}

#[cfg(test)]
mod tests {
    use crate::{Capability, parse};

    fn needs(text: &str) -> Vec<&'static str> {
        parse(text).unwrap().needs().into_iter().map(Capability::word).collect()
    }

    #[test]
    fn words_that_need_something_say_so() {
        assert_eq!(needs("fault refuse at any 1\nset memory 1M\n"), ["bounded-memory", "faults"]);
        assert_eq!(needs("note a = device\nexpect a == execs\n"), ["device-bytes", "driver-calls"]);
        assert_eq!(needs("seed 3\nrequires suspend\n"), ["random", "suspend"]);
        assert_eq!(needs("fn f(x) -> x with mode auto\n  add! x 1\n"), ["counted-time"]);
    }

    #[test]
    fn what_a_pool_holds_depends_on_the_pages_unless_it_is_nothing_or_as_before() {
        assert_eq!(needs("note a = reserved\nexpect reserved == a\nexpect reserved == 0\n"), [""; 0]);
        for demand in ["reserved <= 4K", "reserved == 4K", "4K > reserved"] {
            assert_eq!(needs(&format!("expect {demand}\n")), ["small-pages"], "{demand}");
        }
        assert_eq!(needs("set budget 64K\n"), ["small-pages"]);
    }
}
