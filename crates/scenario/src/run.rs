//! Running a scenario in every set-up.

mod body;
mod call;
mod compare;
mod device_run;
mod expect;
mod failure;
mod faults;
mod ground;
mod interp;
mod memory;
mod model;
mod needs;
mod outcome;
mod random;
mod task;
mod threads;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::run::failure::Failure;
use crate::run::ground::Ground;
use crate::run::interp::{Binding, Interp};
use crate::run::world::{Opened, World};
use crate::{Capability, Scenario, Setting, Setup};

pub use ground::Cuda;
pub use outcome::{Finding, Outcome, Report};

/// The device that a scenario is run on.
#[derive(Clone, Debug, Default)]
pub enum RunOn {
    /// The simulated device, a new one for each set-up.
    #[default]
    Sim,
    /// The first CUDA device, one for all.
    Cuda(Cuda),
}

/// How a scenario is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The device.
    pub device: RunOn,
    /// Only this mode.
    pub mode: Option<crate::ModeName>,
    /// Only so many layers.
    pub layers: Option<u32>,
    /// Another seed than the scenario's.
    pub seed: Option<u64>,
    /// Says what became of the trees in the first set-up although nothing failed.
    pub explain: bool,
}

/// Runs a scenario in every set-up that it and the options allow, and stops at the first one in which something is not as it
/// should be.
///
/// ```
/// let scenario = graphgrove_scenario::parse(
///     "fn double(x) -> y\n  y = mul x 2\n\
///      repeat 5\n  y = call double(rand [8])\n  drop y\n\
///      expect replays == 3\n",
/// )?;
/// let report = graphgrove_scenario::run(&scenario, &graphgrove_scenario::Options::default());
/// assert!(matches!(report.outcome, graphgrove_scenario::Outcome::Passed));
/// # Ok::<(), graphgrove_scenario::ParseError>(())
/// ```
#[must_use]
pub fn run(scenario: &Scenario, options: &Options) -> Report {
    if let Some(why) = reason_to_skip(scenario, matches!(options.device, RunOn::Sim)) {
        return Report::of(Outcome::Skipped { why });
    }
    match &options.device {
        RunOn::Sim => {
            let memory = scenario.setting(|setting| match setting {
                Setting::Memory(bytes) => Some(*bytes),
                _ => None,
            });
            run_on(scenario, options, |seed| {
                let device = Arc::new(ground::simulated(seed, memory));
                (Arc::clone(&device), Arc::new(device))
            })
        }
        RunOn::Cuda(cuda) => {
            run_on(scenario, options, |_| (Arc::clone(&cuda.device), Arc::clone(&cuda.code)))
        }
    }
}

/// Why a scenario is not run, if it is not: it says so itself, or needs what nothing has, or what this device has not.
fn reason_to_skip(scenario: &Scenario, is_simulated: bool) -> Option<String> {
    if scenario.skip.is_some() {
        return scenario.skip.clone();
    }
    let needs = scenario.needs();
    let all = |lacks: fn(&Capability) -> bool| {
        let words: Vec<&str> = needs.iter().filter(|need| lacks(need)).map(|need| need.word()).collect();
        (!words.is_empty()).then(|| format!("requires {}", words.join(", ")))
    };
    let missing = all(|need| !need.is_built());
    missing.or_else(|| {
        let here = all(|need| need.is_simulated()).filter(|_| !is_simulated);
        here.map(|missing| format!("{missing}, which the simulated device alone has"))
    })
}

/// Runs a scenario in every set-up, on devices that are opened by a seed.
fn run_on<D: Ground>(scenario: &Scenario, options: &Options, open: impl Fn(u64) -> Opened<D>) -> Report {
    let mut report = Report::of(Outcome::Passed);
    for setup in setups(scenario, options) {
        report.setups += 1;
        let explains = options.explain && report.explained.is_empty();
        match run_in(scenario, setup, options.seed, &open, explains) {
            Ok(seen) => {
                report.compared += seen.compared;
                // One is enough, or nobody reads it: the first that was asked for.
                if options.explain && report.explained.is_empty() {
                    report.explained.push((setup, seen.explained));
                }
            }
            Err((failure, _)) => {
                // Once more, and this time somebody looks.
                let again = run_in(scenario, setup, options.seed, &open, true);
                let explained = again.err().map(|(_, explained)| explained).unwrap_or_default();
                report.outcome = Outcome::of(setup, failure, explained);
                break;
            }
        }
    }
    report
}

/// The set-ups in which a scenario is run.
#[must_use]
pub fn setups(scenario: &Scenario, options: &Options) -> Vec<Setup> {
    let only: Vec<_> = scenario
        .settings
        .iter()
        .filter_map(|setting| match setting {
            Setting::Only(filters) => Some(filters),
            _ => None,
        })
        .flatten()
        .collect();
    let mut all = Setup::all();
    all.retain(|setup| {
        (only.is_empty() || only.iter().any(|filter| filter.has(*setup)))
            && options.mode.is_none_or(|mode| mode == setup.mode)
            && options.layers.is_none_or(|layers| layers == setup.layers)
    });
    all
}

/// What a run in one set-up has shown.
struct Seen {
    compared: u64,
    explained: String,
}

fn run_in<D: Ground>(
    scenario: &Scenario,
    setup: Setup,
    seed: Option<u64>,
    open: &impl Fn(u64) -> Opened<D>,
    explains: bool,
) -> Result<Seen, (Failure, String)> {
    let of_file = scenario.setting(|setting| match setting {
        Setting::Seed(seed) => Some(*seed),
        _ => None,
    });
    let seed = seed.or(of_file).unwrap_or(0);
    let start =
        |error: &dyn std::fmt::Display| (Failure::Wrong { line: 0, why: error.to_string() }, String::new());
    let world = World::new(scenario, setup, open(seed), explains).map_err(|error| start(&error))?;
    let mut interp = Interp::new(&world, seed);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        interp.block(&scenario.statements)?;
        interp.compare_all()
    }));
    let line = interp.line;
    let ran = ran.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Failure::Wrong { line, why: format!("the engine panicked: {said}") })
    });
    let explained = if explains { explain(&world) } else { String::new() };
    if let Err(failure) = ran {
        let verdict = if world.is_poisoned.load(Ordering::Relaxed) { Ok(()) } else { world.device.found() };
        let found = verdict.err().map(|found| format!("the checker found:\n{found}\n")).unwrap_or_default();
        return Err((failure, format!("{explained}{found}")));
    }
    let compared = world.compared.load(Ordering::Relaxed);
    let names = std::mem::take(&mut interp.names);
    drop(interp);
    end(world, names, seed).map_err(|why| (Failure::Wrong { line, why }, explained.clone()))?;
    Ok(Seen { compared, explained })
}

/// What the engines have made of the program, and of the last calls.
fn explain<D: Ground>(world: &World<'_, D>) -> String {
    let mut text = String::new();
    if let Some(log) = &world.log {
        text.push_str("the last calls:\n");
        log.lock().iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    for site in &world.sites {
        if let Ok(reasons) = site.engine.reasons() {
            text.push_str("why calls did not simply replay:\n");
            reasons
                .iter()
                .for_each(|of| text.push_str(&format!("  {} x {}: {}\n", of.calls, of.function, of.why)));
        }
        if let Ok(outline) = site.engine.outline() {
            text.push_str("the recordings:\n");
            outline.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
    }
    text
}

/// Lets go of everything, and looks whether all memory is given back and whether the checker has found anything.
fn end<D: Ground>(
    world: World<'_, D>,
    names: std::collections::BTreeMap<String, Binding<D>>,
    seed: u64,
) -> Result<(), String> {
    let is_poisoned = world.is_poisoned.load(Ordering::Relaxed);
    let World { device, sites, yard, sets, left, .. } = world;
    device.forget_faults();
    for function in sites.iter().flat_map(|site| site.functions.values()) {
        function.state.hidden.lock().clear();
    }
    // Who is dropped first must not matter.
    if seed.is_multiple_of(2) {
        drop(sites);
        settle(&yard, &device, is_poisoned)?;
        drop((names, sets, left));
    } else {
        drop((left, sets, names));
        drop(sites);
    }
    settle(&yard, &device, is_poisoned)?;
    if is_poisoned {
        return Ok(());
    }
    device.has_everything_back().map_err(|left| format!("after the end {left}"))?;
    device.found().map_err(|found| format!("the checker found:\n{found}"))
}

fn settle<D: Ground>(yard: &memory::Graveyard<D>, device: &Arc<D>, is_poisoned: bool) -> Result<(), String> {
    if is_poisoned {
        let _ = device.synchronize();
        yard.clear();
        return Ok(());
    }
    yard.settle(device).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_does_not_have_is_a_reason_to_skip_there_alone() {
        let why = |text: &str, is_simulated| reason_to_skip(&crate::parse(text).unwrap(), is_simulated);
        assert_eq!([true, false].map(|simulated| why("step\n", simulated)), [None, None]);
        let faulty = "fault refuse at any 1\nexpect driver == 1\n";
        assert_eq!(why(faulty, true), None);
        let missing = "requires driver-calls, faults, which the simulated device alone has";
        assert_eq!(why(faulty, false).as_deref(), Some(missing));
        // What nothing has comes first, and what the scenario says itself before all.
        assert_eq!(why("suspend\nset memory 1M\n", false).as_deref(), Some("requires suspend"));
        assert_eq!(why("skip \"not now\"\nsuspend\n", false).as_deref(), Some("not now"));
    }
}
