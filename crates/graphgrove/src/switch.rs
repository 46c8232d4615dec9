//! The mode `Auto`: trying out whether recording a function pays back.

use graphgrove_device::Device;
use graphgrove_replay::Costs;
use graphgrove_storage::InputIndex;

use crate::grove::{Done, Grove, Request};
use crate::{Arg, Event, Result};

/// How many replays, and how many plain runs, are timed. The fastest of each count, as all else that a host does makes calls slower.
const TIMED: u32 = 3;

/// How many calls a trial may take. A function of which fewer than [`TIMED`] of them are replays does not repeat itself.
const PATIENCE: u32 = 32;

/// How many calls run plainly after a first trial that recording has lost, before the next. The number doubles with each.
const FIRST_PAUSE: u32 = 256;

/// The most calls that run plainly before the next trial.
const LONGEST_PAUSE: u32 = 1 << 16;

/// How many recordings of a function that is recorded show that its calls have changed, so that it is tried out again.
const NEWS: u32 = 8;

/// Whether a function is recorded, or still being tried out.
#[derive(Debug)]
pub(crate) struct Trial {
    state: State,
    pause: u32,
}

#[derive(Debug)]
enum State {
    Trying(Times),
    /// It runs plainly, and so many calls are left until the next trial.
    Plain {
        left: u32,
        why: String,
    },
    /// It is recorded, and so many recordings were made since that was decided.
    Recorded {
        news: u32,
    },
}

/// What was timed so far, in nanoseconds.
#[derive(Debug, Default)]
struct Times {
    calls: u32,
    replays: Vec<u64>,
    plain: Vec<u64>,
}

/// How a call is to run.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    InTrees,
    Plainly(Option<String>),
}

/// What a trial has shown.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    records: bool,
    why: String,
}

impl Trial {
    pub(crate) fn new() -> Self {
        Self { state: State::Trying(Times::default()), pause: FIRST_PAUSE }
    }

    /// Whether the calls have to be looked at one by one.
    pub(crate) const fn is_under_way(&self) -> bool {
        !matches!(self.state, State::Recorded { .. })
    }

    /// Takes note of a recording that was made outside of a trial. Whether a trial begins.
    pub(crate) fn was_recorded(&mut self) -> bool {
        let State::Recorded { news } = &mut self.state else { return false };
        *news += 1;
        let has_changed = *news >= NEWS;
        if has_changed {
            self.state = State::Trying(Times::default());
        }
        has_changed
    }

    fn turn(&mut self) -> Turn {
        match &mut self.state {
            State::Recorded { .. } => Turn::InTrees,
            State::Trying(times) if times.replays.len() < TIMED as usize => Turn::InTrees,
            State::Trying(_) => Turn::Plainly(None),
            State::Plain { left: 0, .. } => {
                self.state = State::Trying(Times::default());
                Turn::InTrees
            }
            State::Plain { left, why } => {
                *left -= 1;
                Turn::Plainly(Some(why.clone()))
            }
        }
    }

    /// Takes note of a call that was tried out: how long it took, and how it ran.
    fn ran(&mut self, ns: u64, was_replay: bool, was_plain: bool) -> Option<Verdict> {
        let State::Trying(times) = &mut self.state else { return None };
        times.calls += 1;
        if was_replay {
            times.replays.push(ns);
        } else if was_plain {
            times.plain.push(ns);
        }
        let verdict = times.verdict()?;
        if verdict.records {
            self.state = State::Recorded { news: 0 };
            self.pause = FIRST_PAUSE;
        } else {
            self.state = State::Plain { left: self.pause, why: verdict.why.clone() };
            self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
        Some(verdict)
    }
}

impl Times {
    fn verdict(&self) -> Option<Verdict> {
        if self.plain.len() >= TIMED as usize {
            let (replay, plain) = (self.replays.iter().min()?, self.plain.iter().min()?);
            let records = replay < plain;
            let than = if records { "less" } else { "no less" };
            let why =
                format!("a replay takes {replay} ns, which is {than} than the {plain} ns of a plain run");
            return Some(Verdict { records, why });
        }
        let replays = self.replays.len();
        (self.calls >= PATIENCE && replays < TIMED as usize).then(|| Verdict {
            records: false,
            why: format!("only {replays} of {} calls were replays", self.calls),
        })
    }
}

/// Makes a call of a function that is being tried out. What a trial has shown becomes an event.
pub(crate) fn try_out<D: Device>(
    trial: &mut Trial,
    grove: &mut Grove<D>,
    request: &Request<'_, D>,
    args: &mut [Arg<'_, D>],
) -> Result<Done> {
    let turn = trial.turn();
    let request = Request { is_plain: turn != Turn::InTrees, ..*request };
    if let Turn::Plainly(Some(why)) = &turn {
        grove.reasons.add(&request.data.name, why);
        grove.because(|| why.clone());
    }
    let outside: Vec<(InputIndex, u64)> =
        (0..).map(InputIndex::new).zip(args.iter()).filter_map(staged).collect();
    let (before, start) = (grove.stats.replays, grove.clock.now());
    let done = grove.call(&request, args)?;
    let ns = grove.clock.since(start);
    let was_replay = grove.stats.replays > before;
    let ns = if was_replay { ns.saturating_add(grove.copying_ns(&outside)) } else { ns };
    if let Some(Verdict { records, why }) = trial.ran(ns, was_replay, request.is_plain)
        && let Some(watch) = &grove.watch
    {
        watch.seen.lock().judged = Some(Event::Judged { function: request.data.event_name(), records, why });
    }
    Ok(done)
}

/// An input from outside of the path, with its bytes.
fn staged<D: Device>((index, arg): (InputIndex, &Arg<'_, D>)) -> Option<(InputIndex, u64)> {
    let tensor = arg.tensor()?;
    let is_output = tensor.storage().slot_value().is_ok_and(|value| value.is_some());
    (!is_output).then(|| (index, tensor.layout().span_bytes()))
}

impl<D: Device> Grove<D> {
    /// How long the device copies inputs for the node that has just run, as far as their addresses are not patched.
    fn copying_ns(&self, outside: &[(InputIndex, u64)]) -> u64 {
        let node = self.tree.current().and_then(|node| self.nodes.get(node)?.key);
        let is_copied =
            |input: &InputIndex| node.is_none_or(|key| self.replayer.patched_nodes(key, *input) == 0);
        let bytes: u64 = outside.iter().filter(|(input, _)| is_copied(input)).map(|(_, bytes)| bytes).sum();
        (bytes as f64 / Costs::default().bytes_per_ns) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes calls whose replays and plain runs take so long, until there is a verdict, and says after how many.
    fn decide(trial: &mut Trial, replay: u64, plain: u64) -> (u32, Verdict) {
        for call in 1.. {
            let is_plain = trial.turn() != Turn::InTrees;
            // The first two calls of a function warm it up and record it.
            let was_replay = !is_plain && call > 2;
            if let Some(verdict) = trial.ran(if is_plain { plain } else { replay }, was_replay, is_plain) {
                return (call, verdict);
            }
        }
        unreachable!("a trial has an end")
    }

    #[test]
    fn what_is_faster_is_decided_after_a_few_calls() {
        let mut trial = Trial::new();
        let (calls, verdict) = decide(&mut trial, 10, 11);
        assert_eq!((calls, verdict.records, trial.is_under_way()), (8, true, false));
        for (replay, plain) in [(10, 10), (11, 10)] {
            let mut trial = Trial::new();
            let (_, verdict) = decide(&mut trial, replay, plain);
            assert!(!verdict.records && trial.is_under_way());
            assert!(verdict.why.contains(&format!("{replay} ns")), "{}", verdict.why);
            assert_eq!(trial.turn(), Turn::Plainly(Some(verdict.why)));
        }
    }

    #[test]
    fn a_function_that_does_not_repeat_itself_is_left_alone() {
        let mut trial = Trial::new();
        let verdicts = (0..PATIENCE).filter_map(|_| trial.ran(1, false, false)).collect::<Vec<_>>();
        assert_eq!(verdicts.len(), 1);
        assert_eq!(verdicts[0].why, "only 0 of 32 calls were replays");
    }

    #[test]
    fn a_trial_comes_again_after_a_pause_that_doubles() {
        let mut trial = Trial::new();
        for pause in [FIRST_PAUSE, 2 * FIRST_PAUSE] {
            assert!(!decide(&mut trial, 2, 1).1.records);
            let plain = (0..).take_while(|_| trial.turn() != Turn::InTrees).count();
            assert_eq!(plain, pause as usize);
        }
    }

    #[test]
    fn new_recordings_bring_about_another_trial() {
        let mut trial = Trial::new();
        assert!(decide(&mut trial, 1, 2).1.records);
        let begun: Vec<bool> = (0..NEWS).map(|_| trial.was_recorded()).collect();
        assert_eq!(begun.iter().filter(|begun| **begun).count(), 1);
        assert!(begun[NEWS as usize - 1] && trial.is_under_way());
    }
}
