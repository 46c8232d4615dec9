//! What a program demands beside equal values.

use std::sync::atomic::Ordering;

use graphgrove::EngineStats;
use graphgrove_device::Call as DriverCall;

use crate::run::compare::{index, is_same};
use crate::run::failure::Failure;
use crate::run::ground::Ground;
use crate::run::interp::{Binding, Done, Interp};
use crate::{Counter, Demand, Expectation, Measure, Name, Number, Setup, Values};

impl<D: Ground> Interp<'_, '_, D> {
    pub(crate) fn expect(&mut self, expectation: &Expectation) -> Done {
        let setup = self.world.setup;
        let is_demanded = match expectation.of {
            Some(of) => of.has(setup),
            None => setup == Setup::MAIN || expectation.demand.is_of_values(),
        };
        if is_demanded { self.demand(expectation) } else { Ok(()) }
    }

    fn demand(&mut self, expectation: &Expectation) -> Done {
        let holds = match &expectation.demand {
            Demand::Values { left, right, within } => return self.have_values(left, right, *within),
            Demand::Compare(measure, how, right) => {
                let (left, right) = (self.measure(measure)?, self.measure(right)?);
                if how.holds(left, right) {
                    return Ok(());
                }
                let of = match measure {
                    Measure::Number(Number::Literal(_)) => left.to_string(),
                    _ => format!("`{measure}` is {left}"),
                };
                return Err(self.wrong(format!("{expectation}: {of}, and not {} {right}", how.word())));
            }
            Demand::Stale(name) => self.is_gone(name)?,
            Demand::Readable(name) => !self.is_gone(name)?,
            Demand::Shares(a, b) | Demand::Apart(a, b) => {
                let (a, b) = (&self.handle(a)?.tensor, &self.handle(b)?.tensor);
                match a.shares_storage(b) {
                    Ok(shares) => shares == matches!(expectation.demand, Demand::Shares(..)),
                    // What is gone is compared where it is there.
                    Err(_) => return Ok(()),
                }
            }
            Demand::Reason(function, text) => return self.has_reason(function, text, true),
            Demand::NoReason(function, text) => return self.has_reason(function, text, false),
        };
        if holds { Ok(()) } else { Err(self.wrong(format!("{expectation}: it is not so"))) }
    }

    fn have_values(&mut self, left: &Name, right: &Values, within: f32) -> Done {
        // Numbers are compared as they are.
        if let (Some(Binding::Note(found) | Binding::Number(found)), Values::Of(right)) =
            (self.names.get(&left.text), right)
        {
            return match self.names.get(&right.text) {
                Some(Binding::Note(wanted) | Binding::Number(wanted)) if found == wanted => Ok(()),
                Some(Binding::Note(wanted) | Binding::Number(wanted)) => {
                    Err(self.wrong(format!("`{left}` is {found} and `{right}` is {wanted}")))
                }
                _ => Err(self.impossible(format!("`{left}` is a number and `{right}` is none"))),
            };
        }
        let is_gone = |name: &Name| self.is_gone(name).unwrap_or(false);
        let names = match right {
            Values::Of(right) => vec![left, right],
            Values::New(_) => vec![left],
        };
        // A value that is gone by a rule is compared where it is there; but the main set-up has to have it.
        if self.world.setup != Setup::MAIN && names.iter().any(|name| is_gone(name)) {
            return Ok(());
        }
        let found = self.values(left)?;
        let (shape, wanted) = match right {
            Values::Of(right) => (self.handle(right)?.model.shape.clone(), self.values(right)?),
            Values::New(tensor) => {
                let handle = self.new_tensor(tensor)?;
                (handle.model.shape.clone(), self.model.values(&handle.model))
            }
        };
        let has = self.handle(left)?.model.shape.clone();
        if has != shape {
            return Err(self.wrong(format!("`{left}` has the shape {has:?}, not {shape:?}")));
        }
        let is_near = |a: f32, b: f32| is_same(a, b) || (within > 0.0 && (a - b).abs() <= within);
        match found.iter().zip(&wanted).position(|(a, b)| !is_near(*a, *b)) {
            None => Ok(()),
            Some(at) => {
                let (element, found, wanted) = (index(&shape, at), found[at], wanted[at]);
                Err(self.wrong(format!("element {element} of `{left}` is {found}, not {wanted}")))
            }
        }
    }

    fn has_reason(&self, function: &Name, text: &str, is_wanted: bool) -> Done {
        let reasons = self.site().engine.reasons().map_err(|error| self.wrong(error))?;
        let of: Vec<_> = reasons.into_iter().filter(|reason| reason.function == function.text).collect();
        let found = of.iter().any(|reason| reason.why.contains(text));
        if found == is_wanted {
            return Ok(());
        }
        let all: Vec<String> = of.iter().map(|reason| format!("{} x {}", reason.calls, reason.why)).collect();
        let is = if is_wanted { "none has" } else { "one has" };
        Err(self.wrong(format!("reasons of `{function}`: {is} \"{text}\": {}", all.join("; "))))
    }

    pub(crate) fn measure(&self, measure: &Measure) -> Result<u64, Failure> {
        match measure {
            Measure::Number(number) => self.number(number),
            Measure::Address(name) => {
                let address = self.handle(name)?.tensor.address();
                Ok(address.map_or(0, graphgrove_device::DevicePtr::get))
            }
            Measure::Counter(counter, Some(of)) => {
                let Some(registered) = self.site().functions.get(&of.text) else {
                    return Err(self.impossible(format!("there is no function `{of}`")));
                };
                let counts = *registered.counts.lock();
                Ok(match counter {
                    Counter::WarmUps => counts.warm_ups,
                    Counter::Recordings => counts.recordings,
                    Counter::Replays => counts.replays,
                    Counter::Eager => counts.eager,
                    _ => registered.calls.load(Ordering::Relaxed),
                })
            }
            Measure::Counter(counter, None) => self.counter(*counter),
        }
    }

    fn counter(&self, counter: Counter) -> Result<u64, Failure> {
        self.settle()?;
        let stats = self.site().engine.stats().map_err(|error| self.wrong(error))?;
        let EngineStats { calls, pools, plain, nodes, pending_backwards, exec_bytes, budgeted, .. } = stats;
        let device = &self.world.device;
        Ok(match counter {
            Counter::Calls => {
                self.site().functions.values().map(|function| function.calls.load(Ordering::Relaxed)).sum()
            }
            Counter::WarmUps => calls.warm_ups,
            Counter::Recordings => calls.recordings,
            Counter::Replays => calls.replays,
            Counter::Predicted => calls.predicted,
            Counter::Eager => calls.eager,
            Counter::Failures => calls.failures,
            Counter::Copied => calls.copied_out,
            Counter::Nodes => nodes as u64,
            Counter::ExecBytes => exec_bytes,
            Counter::Budgeted => budgeted,
            Counter::Pending => pending_backwards as u64,
            Counter::Execs => {
                let counts = device.driver_calls();
                counts.map_or(0, |counts| {
                    counts.of(DriverCall::Instantiate) - counts.of(DriverCall::DestroyExec)
                })
            }
            Counter::Reserved => pools.iter().map(|pool| pool.ranges.reserved).sum(),
            Counter::Live => pools.iter().map(|pool| pool.ranges.live).sum(),
            Counter::Peak => pools.iter().map(|pool| pool.ranges.peak_live).sum(),
            Counter::Outside => plain.ranges.live,
            Counter::Device => {
                let info = device.memory_info().map_err(|error| self.wrong(error))?;
                info.total - info.free
            }
            Counter::Driver => self.world.driver_calls.load(Ordering::Relaxed),
        })
    }
}
