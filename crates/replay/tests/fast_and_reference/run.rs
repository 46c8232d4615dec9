//! Running a program in three worlds at once, and comparing them.

use std::collections::BTreeMap;

use graphgrove_replay::{Method, Mismatch};
use graphgrove_storage::{SavedOutputs, SlotIndex, Step, Tensor};

use crate::eager::{Eager, View};
use crate::function::{Cut, N, PARAMS};
use crate::program::{Arg, At, Call, Change, NewParam, Op, Program};
use crate::world::{self, Asked, Did, Outcome, Way, World, cut};

/// The world that replays by the fast method. Behind it come the one that replays by the reference method, and the one that
/// never does.
const FAST: usize = 0;
const WORLDS: usize = 3;

/// A handle that the program has: the same tensor in each world.
struct Held {
    tensors: [Tensor; WORLDS],
    view: View,
}

/// What a backward reads: the same in each world.
struct Token {
    saved: [SavedOutputs; WORLDS],
    views: Vec<(SlotIndex, View)>,
}

/// What a run has seen, to tell whether programs reach what they are for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) replays: usize,
    pub(crate) records: usize,
    pub(crate) given_up: usize,
    pub(crate) saved: usize,
    /// A (reason, n) pair means: n times a node did not fit for that reason.
    pub(crate) reasons: BTreeMap<String, usize>,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Self) {
        self.replays += other.replays;
        self.records += other.records;
        self.given_up += other.given_up;
        self.saved += other.saved;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }

    fn note(&mut self, mismatch: &Mismatch) {
        let printed = format!("{mismatch:?}");
        let reason = printed.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        *self.reasons.entry(reason).or_default() += 1;
    }
}

pub(crate) struct Run {
    worlds: [World; WORLDS],
    eager: Eager,
    held: Vec<Held>,
    /// Handles of somebody else, which no operation picks.
    aside: Vec<Held>,
    tokens: Vec<Token>,
    params: Vec<View>,
    constant: View,
    step: Step,
    turn: usize,
    /// Whether a round has begun and called nothing yet: its first call runs at the root.
    begins: bool,
    seen: Seen,
}

impl Run {
    pub(crate) fn new(program: &Program) -> Self {
        let ways = [Way::Replays(Method::Fast), Way::Replays(Method::Reference), Way::RecordsAlways];
        let worlds = ways.map(|way| World::new(way, program.seed));
        let mut eager = Eager::default();
        let params = (0..PARAMS).map(|param| eager.outside(100 * param as i32, N, 0)).collect();
        let constant = eager.outside(1000, N, 0);
        let mut run = Self {
            worlds,
            eager,
            held: Vec::new(),
            aside: Vec::new(),
            tokens: Vec::new(),
            params,
            constant,
            step: Step::new(1),
            turn: 0,
            begins: true,
            seen: Seen::default(),
        };
        (0..3).for_each(|number| run.own(10 * number));
        run
    }

    /// Runs all rounds.
    pub(crate) fn all(mut self, program: &Program) -> Seen {
        for round in &program.rounds {
            let base = self.held.len();
            self.begins = true;
            for (at, op) in program.base.iter().enumerate() {
                let changes = round.changes.iter().filter(|(of, _)| of % program.base.len() == at);
                let mut usual = Some(op).filter(|op| !(round.hoards && matches!(op, Op::Drop(_))));
                for (_, change) in changes {
                    match change {
                        Change::Skip => usual = None,
                        Change::Instead(other) => usual = Some(other),
                        Change::Before(other) => self.op(program, other),
                        Change::Aside => {
                            for Held { tensors, view } in self.held.iter().rev().take(3) {
                                self.aside.push(Held { tensors: tensors.clone(), view: *view });
                            }
                        }
                    }
                }
                if let Some(op) = usual {
                    self.op(program, op);
                }
            }
            if round.steps {
                self.op(program, &Op::NewStep);
            }
            // The next round begins with the handles that this one began with, as far as they are left.
            let aside = std::mem::take(&mut self.aside);
            for held in self.held.split_off(base.min(6).min(self.held.len())).into_iter().chain(aside) {
                self.drop(held);
            }
            self.tokens.clear();
            while self.held.len() < 3 {
                self.own(7);
            }
            self.compare_values();
        }
        for world in &self.worlds {
            world.device.verdict().unwrap();
            world.pool.audit().unwrap();
        }
        self.seen
    }

    fn own(&mut self, first: i32) {
        let tensors = std::array::from_fn(|world| self.worlds[world].own(first, N, 0));
        self.held.push(Held { tensors, view: self.eager.outside(first, N, 0) });
    }

    fn drop(&mut self, held: Held) {
        for (world, tensor) in self.worlds.iter_mut().zip(held.tensors) {
            world.drop(tensor);
        }
    }

    fn op(&mut self, program: &Program, op: &Op) {
        match op {
            Op::New(first) => self.own(*first),
            Op::View(of, by) => self.view(*of, *by),
            Op::Clone(of) => {
                if let Some(held) = pick(&self.held, *of) {
                    let held = Held { tensors: held.tensors.clone(), view: held.view };
                    self.held.push(held);
                }
            }
            Op::Drop(at) => {
                if !self.held.is_empty() {
                    let held = self.held.remove(self.held.len() - 1 - at % self.held.len());
                    self.drop(held);
                }
            }
            Op::Write(to, first) => {
                if let Some(held) = pick(&self.held, *to).filter(|held| self.eager.is_own(held.view)) {
                    self.eager.write(held.view, *first);
                    for (world, tensor) in self.worlds.iter_mut().zip(&held.tensors) {
                        world.write(tensor, *first);
                    }
                }
            }
            Op::TakeParam(param) => {
                let param = param % PARAMS;
                let tensors = std::array::from_fn(|world| self.worlds[world].params.tensors()[param].clone());
                self.held.push(Held { tensors, view: self.params[param] });
            }
            Op::ReplaceParam(param, new) => self.replace(*param, *new),
            Op::DropSaved(at) => {
                if !self.tokens.is_empty() {
                    self.tokens.remove(at % self.tokens.len());
                }
            }
            Op::Call(call) => self.call(program, call),
            Op::NewStep => {
                self.step = Step::new(self.step.get() + 1);
                self.eager.end_step();
                for world in &mut self.worlds {
                    world.end_step(self.step);
                }
            }
        }
        self.turn += 1;
        self.compare_states();
        // Between looks the work of several calls is under way at once.
        if self.turn.is_multiple_of(program.looks) {
            self.compare_values();
        }
    }

    fn view(&mut self, of: usize, by: Cut) {
        let Some(held) = pick(&self.held, of) else { return };
        let views = held.tensors.each_ref().map(|tensor| cut(tensor, by));
        let is_over = self.eager.values(held.view).is_none();
        assert!(views.iter().all(|view| view.is_err() == is_over), "{views:?}");
        if !is_over {
            let view = held.view.cut(by.fit(held.view.count));
            self.held.push(Held { tensors: views.map(Result::unwrap), view });
        }
    }

    fn replace(&mut self, param: usize, new: NewParam) {
        let (tensors, view): ([Tensor; WORLDS], View) = match new {
            NewParam::Fresh(first) => {
                let tensors = std::array::from_fn(|world| self.worlds[world].own(first, N, 0));
                (tensors, self.eager.outside(first, N, 0))
            }
            NewParam::Odd(first) => {
                let tensors = std::array::from_fn(|world| self.worlds[world].own(first, N + 1, 1));
                (tensors, self.eager.outside(first, N + 1, 1))
            }
            NewParam::Same => {
                let tensors = std::array::from_fn(|world| self.worlds[world].params.tensors()[param].clone());
                (tensors, self.params[param])
            }
            NewParam::Held(at) => {
                let Some(held) = pick(&self.held, at) else { return };
                (held.tensors.clone(), held.view)
            }
        };
        let replaced = self
            .worlds
            .iter_mut()
            .zip(tensors)
            .map(|(world, tensor)| {
                let replaced = world.params.replace(param, tensor);
                replaced.map(|old| world.drop(old)).is_ok()
            })
            .collect::<Vec<_>>();
        assert!(replaced.iter().all(|is_ok| *is_ok == replaced[0]));
        if replaced[0] {
            self.params[param] = view;
        }
    }

    fn call(&mut self, program: &Program, call: &Call) {
        let number = call.function % program.functions.len();
        let function = &program.functions[number];
        let length = self.worlds[FAST].replayer.path().len();
        let place = match call.at {
            At::Root => 0,
            At::End if std::mem::take(&mut self.begins) => 0,
            At::End => length,
            At::Place(place) => place % (length + 1),
        };
        // Each handle that is given up is one input's alone.
        let mut picked: Vec<(Option<usize>, bool, u64)> = Vec::new();
        for arg in call.args.iter().take(function.arity) {
            let (at, gives_up) = match *arg {
                Arg::Value(value) => {
                    picked.push((None, false, value));
                    continue;
                }
                Arg::Kept(at) => (at, false),
                Arg::GivenUp(at) => (at, true),
            };
            let given = |at: &usize| picked.iter().any(|(of, given, _)| *of == Some(*at) && *given);
            let there: Vec<usize> = (0..self.held.len()).filter(|at| !given(at)).collect();
            let Some(&at) = pick(&there, at) else {
                picked.push((None, false, 0));
                continue;
            };
            let is_shared = picked.iter().any(|(of, ..)| *of == Some(at));
            picked.push((Some(at), gives_up && !is_shared, 0));
        }
        let kinds: Vec<bool> = picked.iter().map(|(at, ..)| at.is_some()).collect();
        let resolved = function.resolve(&kinds);
        let values = picked.iter().map(|(_, _, value)| *value as i32).sum();
        let views: Vec<View> = picked
            .iter()
            .filter_map(|(at, ..)| at.map(|at| self.held[at].view))
            .chain(self.params.iter().copied().filter(|_| function.has_params))
            .collect();

        let given: Vec<usize> =
            picked.iter().filter(|(_, given, _)| *given).filter_map(|(at, ..)| *at).collect();
        let mut handles: Vec<Option<Held>> = std::mem::take(&mut self.held).into_iter().map(Some).collect();
        let mut moved: BTreeMap<usize, [Option<Tensor>; WORLDS]> = BTreeMap::new();
        for at in given {
            let held = handles[at].take().unwrap();
            self.seen.given_up += 1;
            moved.insert(at, held.tensors.map(Some));
        }
        let outcomes: [Outcome; WORLDS] = std::array::from_fn(|world| {
            let args = picked
                .iter()
                .map(|(at, _, value)| match at {
                    None => world::Arg::Value(*value),
                    Some(at) => match moved.get_mut(at) {
                        Some(tensors) => world::Arg::GivenUp(tensors[world].take().unwrap()),
                        None => world::Arg::Kept(&handles[*at].as_ref().unwrap().tensors[world]),
                    },
                })
                .collect();
            let asked =
                Asked { number, function, resolved: &resolved, place, aside: call.aside, step: self.step };
            self.worlds[world].call(&asked, args)
        });
        self.held = handles.into_iter().flatten().collect();
        self.agree(&outcomes);
        if matches!(outcomes[FAST].did, Did::Replayed(_) | Did::Recorded(_)) {
            let left = self.eager.call(&resolved, &views, values, self.constant);
            self.keep(outcomes, left);
        }
    }

    /// The worlds have done the same, or refused for the same reasons.
    fn agree(&mut self, outcomes: &[Outcome; WORLDS]) {
        let [fast, reference, always] = outcomes;
        assert_eq!(fast.did, reference.did, "tried {:?} and {:?}", fast.tried, reference.tried);
        assert_eq!(fast.tried, reference.tried);
        match (&fast.did, &always.did) {
            (Did::Replayed(_) | Did::Recorded(_), Did::Recorded(_)) | (Did::Busy, Did::Busy) => {}
            // A stale handle's report names the run that made it, and what never replays has no second run.
            (Did::Refused(one), Did::Refused(other)) => {
                assert_eq!(std::mem::discriminant(one), std::mem::discriminant(other));
            }
            (one, other) => panic!("{one:?}, and recorded always: {other:?}"),
        }
        self.seen.replays += usize::from(matches!(fast.did, Did::Replayed(_)));
        self.seen.records += usize::from(matches!(fast.did, Did::Recorded(_)));
        for (_, mismatch) in &fast.tried {
            self.seen.note(mismatch);
        }
    }

    /// Keeps the outputs of a call.
    fn keep(&mut self, outcomes: [Outcome; WORLDS], left: crate::eager::Left) {
        let [fast, reference, always] = outcomes;
        let mut outputs = [fast.outputs, reference.outputs, always.outputs].map(Vec::into_iter);
        let mut saved_views = Vec::new();
        for (slot, (view, readers)) in (0..).map(SlotIndex::new).zip(left) {
            let taken = outputs.each_mut().map(|outputs| outputs.next().unwrap());
            let is_returned = readers != graphgrove_storage::Readers::Backward;
            match (view, taken) {
                (Some(view), [Some(a), Some(b), Some(c)]) if is_returned => {
                    self.held.push(Held { tensors: [a, b, c], view });
                }
                (Some(_), [None, None, None]) if !is_returned => {}
                (None, [None, None, None]) => {}
                (None, [Some(a), Some(b), Some(c)]) => {
                    assert!([a, b, c].iter().all(|tensor| tensor.layout().is_empty()));
                }
                (view, taken) => panic!("{view:?} and {taken:?}"),
            }
            if let Some(view) = view.filter(|_| readers != graphgrove_storage::Readers::Caller) {
                saved_views.push((slot, view));
            }
        }
        match (fast.saved, reference.saved, always.saved) {
            (Some(a), Some(b), Some(c)) => {
                self.seen.saved += 1;
                self.tokens.push(Token { saved: [a, b, c], views: saved_views });
            }
            (None, None, None) => assert!(saved_views.is_empty()),
            (a, b, c) => panic!("{a:?}, {b:?}, {c:?}"),
        }
    }

    /// Every value that can be read is the same in all worlds, and what was computed.
    fn compare_values(&mut self) {
        for world in &mut self.worlds {
            world.settle();
            let findings = world.device.findings();
            assert!(findings.is_empty(), "{:?}: {}", world.way, findings[0]);
        }
        for held in self.held.iter().chain(&self.aside) {
            let expected = self.eager.values(held.view);
            for (world, tensor) in self.worlds.iter().zip(&held.tensors) {
                assert_eq!(world.values(tensor), expected, "{tensor:?} where it is {:?}", world.way);
            }
            let [fast, reference, _] = &held.tensors;
            assert_eq!(fast.address(), reference.address());
        }
        for token in &self.tokens {
            for (slot, view) in &token.views {
                let expected = self.eager.values(*view);
                for (world, saved) in self.worlds.iter().zip(&token.saved) {
                    let tensor = saved.tensor(*slot).unwrap();
                    assert_eq!(world.values(&tensor), expected, "saved {slot} where it is {:?}", world.way);
                }
            }
        }
        for (param, view) in self.params.iter().enumerate() {
            let expected = self.eager.values(*view);
            for world in &self.worlds {
                assert_eq!(world.values(&world.params.tensors()[param]), expected, "parameter {param}");
            }
        }
    }

    /// Everything else that can be seen is the same in all worlds.
    fn compare_states(&self) {
        let [fast, reference, always] = &self.worlds;
        assert_eq!(fast.replayer.path(), reference.replayer.path());
        assert_eq!(fast.replayer.predicted(), reference.replayer.predicted());
        assert_eq!(fast.nodes, reference.nodes);
        for node in &fast.nodes {
            let seen = |world: &World| {
                let slab = world.replayer.slab(*node).unwrap();
                let live: Vec<SlotIndex> = slab.live().collect();
                (live, slab.epoch(), world.replayer.replays(*node))
            };
            assert_eq!(seen(fast), seen(reference), "{node:?}");
        }
        assert_eq!(fast.pool.stats(), reference.pool.stats());
        assert_eq!(fast.pool.spans(), reference.pool.spans());
        let live = |world: &World| -> Vec<Vec<SlotIndex>> {
            let path = world.replayer.path().iter();
            path.map(|node| world.replayer.slab(*node).unwrap().live().collect()).collect()
        };
        assert_eq!(live(fast), live(always));
    }
}

fn pick<T>(of: &[T], at: usize) -> Option<&T> {
    (!of.is_empty()).then(|| &of[of.len() - 1 - at % of.len()])
}
